"""The PTX interpreter: text that it cannot load, or can load but not run."""

from __future__ import annotations

import functools
import random

import numpy as np
import pytest

from tests.ptx_cases import DATA, attempt
from tests.ptx_machine import HEADER, Machine, PtxError

pytestmark = pytest.mark.native


def test_missing_instructions_fail_at_launch_only() -> None:
    text = (
        HEADER
        + """
.visible .entry good() { ret; }
.visible .entry bad() { .reg .b32 %r<3>;
	wgmma.fence.sync.aligned;
	ret; }
.func helper() { .reg .b32 %r<2>; add.weird.u32 %r1, %r1, 1; ret; }
.visible .entry worse() { call helper; ret; }
"""
    )
    module = Machine().load(text)
    module.launch("good")
    for name, opcode in (("bad", "wgmma.fence.sync.aligned"), ("worse", "add.weird.u32")):
        with pytest.raises(PtxError) as error:
            module.launch(name)
        assert error.value.status == "unsupported"
        assert opcode in error.value.message
        assert f"kernel {name}" in error.value.message


@pytest.mark.parametrize(
    "instruction",
    [
        "add.u32 %r1, %r2;",
        "add.u32 %r1, %r2, %l1;",
        "add.u32 %r1, %r2, 0f3F800000, 4;",
        "add.rn.u32 %r1, %r2, %r3;",
        "add.f32 %f1, %f1, 3;",
        "mul.u32 %r1, %r2, %r3;",
        "cvt.f32.s32 %f1, %r1;",
        "cvt.rzi.f32.s32 %f1, %r1;",
        "cvt.s32.f32 %r1, %f1;",
        "setp.lt.b16.u32 %p, %r1, %r2;",
        "setp.lt.u32 %r1, %r1, %r2;",
        "ld.global.v3.u32 {%r1, %r2, %r3}, [%l1];",
        "ld.global.v2.u32 {%r1, %l2}, [%l1];",
        "ld.global.u32 %r1, [%r2];",
        "ld.global.u64 %r1, [%l2];",
        "st.const.u32 [%l1], %r1;",
        "atom.global.add.s64 %l1, [%l2], %l3;",
        "atom.global.inc.s32 %r1, [%l2], %r3;",
        "shfl.sync.up.b64 %l1, %l2, 1, 0, -1;",
        "shfl.up.b32 %r1, %r2, 1, 0;",
        "lop3.b32 %r1, %r1, %r2, %r3, %r4;",
        "mov.u32 %r1, %nothing;",
        "tex.2d.v4.f32.f32 {%f1, %f1, %f1, %f1}, [%l1, {%f1, %f1}];",
        "bar.sync 0, 1, 2;",
    ],
)
def test_malformed_instructions_are_unsupported(instruction: str) -> None:
    text = (
        HEADER
        + f""".visible .entry k() {{
	.reg .pred %p; .reg .b32 %r<5>; .reg .b64 %l<5>; .reg .f32 %f<3>;
	{instruction}
	ret; }}"""
    )
    with pytest.raises(PtxError) as error:
        Machine().load(text).launch("k")
    assert error.value.status == "unsupported"
    assert instruction.split()[0] in error.value.message
    assert "line 6" in error.value.message


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("", "line 1: this is no PTX"),
        ("hello", "line 1: this is no PTX"),
        (HEADER + ".visible .entry k() {", "unexpected end of text"),
        (HEADER + ".entry k() { add.u32 %r1, %r2, %r3 }", 'line 4: unexpected "}"'),
        (HEADER + ".entry k() { @%p bra x; }", "no register is named %p"),
        (HEADER + ".entry k() {\n bra nowhere; }", "line 5: no label is named nowhere"),
        (HEADER + ".entry k() { a: ret; a: ret; }", "label a is there twice"),
        (HEADER + ".entry k() { ret; }\n.entry k() { ret; }", "line 5: k is there twice"),
        (HEADER + ".entry k() { .reg .b128 %x; }", 'unexpected ".b128"'),
        (HEADER + ".entry k() { .reg .b32 %r<4000000000>; }", "too many registers"),
        (HEADER + ".entry k() { /* ", "unterminated comment"),
        (HEADER + "/* a\n\nb */\n.frobnicate;", "line 7: unexpected"),
        (HEADER + ".global .u32 x[2] = {1, 2, 3};", "more initial values than x has room for"),
        (HEADER + ".global .pred x = 1;", "x is of a type that has no size in memory"),
        (HEADER + ".global .u32 x = y;", "nothing is named y"),
        (HEADER + ".extern .global .u32 x;", "extern variable x is defined nowhere"),
        (HEADER + ".global .u64 a = b; .global .u64 b = a;", "refers to itself"),
        (HEADER + ".global .b8 x[99999999999][99999999999];", "x is too large"),
        (HEADER + ".global .u32 x[];", "x has no size"),
        (HEADER + ".frobnicate;", 'unexpected ".frobnicate"'),
        (HEADER + ".entry k() {\nnonsense;\n}", "line 5: PTX has no instruction nonsense"),
        (HEADER + ".entry k() { adds.u32 %r1, %r2; }", "PTX has no instruction adds.u32"),
        (HEADER + ".entry k() { ad.u32 %r1, %r2; }", "PTX has no instruction ad.u32"),
        (HEADER + ".global .u32 x = 0x;", "malformed number"),
        (HEADER + ".global .f32 x = 0f12;", "malformed floating-point number"),
        (HEADER + "{" * 100000, 'unexpected "{"'),
        (HEADER + ".entry k() " + "{" * 100000, "nested too deeply"),
        (HEADER + ".entry k() { add " + "{" * 100000, "nested too deeply"),
        (".version 6.3\n.address_size 32\n", "address size"),
        (
            HEADER + '.entry k() {\n.pragma "used_bytes_mask 15";\n}',
            "line 5: used_bytes_mask needs PTX 8.3",
        ),
    ],
)
def test_invalid_text_is_refused(text: str, words: str) -> None:
    with pytest.raises(PtxError) as error:
        Machine().load(text)
    assert error.value.status == "load"
    assert words in error.value.message
    assert error.value.message.startswith("line ")


def test_comments_and_directives_are_skipped() -> None:
    text = """// comment
.version 8.4
.target sm_75, debug
.address_size 64
.file 1 "a b.cu"
.visible .entry k(.param .u64 out) .maxnreg 32
{ .reg .b32 %r<2>; .reg .b64 %l<2>; .pragma "nounroll", "used_bytes_mask 0xf";
.loc 1 3 4, function_name $L__info, inlined_at 1 9 1
/* more
   comment */ ld.param.u64 %l1, [out]; .loc 1 4 4
st.global.u32 [%l1], 9; // end
$L__end:
}
.section .debug_str { .b8 1, 2; { } $L: .b8 3 }
"""
    machine = Machine()
    out = machine.alloc(4)
    machine.load(text).launch("k", out, block=[1])
    assert machine.view(out, 4, np.uint32)[0] == 9


def test_damaged_text_is_handled() -> None:
    """Loading, and running what loads, survives any change to real PTX."""
    rng = random.Random(11)
    whole = [p.read_bytes() for p in sorted(DATA.glob("*.ptx"))]
    pieces = [
        b".reg",
        b"{",
        b"}",
        b"%r<9>",
        b"[",
        b"]",
        b"0xffffffffffffffff",
        b"-1",
        b".v4",
        b"|%p1",
        b";",
        b":",
        b"\0",
    ]
    loaded = 0
    for _ in range(250):
        text = bytearray(rng.choice(whole))
        for _ in range(rng.randint(1, 4)):
            at = rng.randrange(len(text))
            kind = rng.random()
            if kind < 0.3:
                text[at] = rng.randrange(1, 256)
            elif kind < 0.6:
                del text[at : at + rng.randint(1, 30)]
            else:
                text[at:at] = rng.choice(pieces)
        machine = Machine()
        module, message = attempt(machine.load, bytes(text))
        assert "\n" not in message
        if module is None:
            continue
        loaded += 1
        for name in module.functions():
            info = module.info(name)
            buffers = [machine.alloc(65536).to_bytes(8, "little") for _ in range(info.param_count)]
            arguments = [
                np.frombuffer((b * (info.params[i].size // 8 + 1))[: info.params[i].size], np.uint8)
                for i, b in enumerate(buffers)
            ]
            attempted = functools.partial(module.launch, name, *arguments, block=[40])
            _, message = attempt(attempted, shared=4096, budget=20000)
            assert "\n" not in message
    assert loaded > 20
