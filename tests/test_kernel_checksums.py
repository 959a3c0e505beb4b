"""Checksums of kernels' code, from module images that are made here, byte by byte."""

from __future__ import annotations

import struct
import time
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import pytest
import xxhash

import ttanalyze as tt
from tests.rundir import Writer, edit, reseal_records
from ttanalyze.code import checksums
from ttanalyze.format import layout

HELPERS = (
    ".visible .func (.param .b32 r) helper(.param .b32 x)\n{ st.param.f32 [r], 0f3FC00000; ret; }\n"
)
PTX = """
.version 8.0
.target sm_70
.address_size 64
.visible .entry add(
	.param .u64 add_param_0
)
{
	.reg .b32 %r<4>;
	ld.param.u64 %rd1, [add_param_0];
	@%p1 bra $L__BB0_2;
	st.global.u32 [%rd1], %r1;
$L__BB0_2:
	ret;
}
.visible .entry scale(.param .u64 scale_param_0)
{
	call (r), helper, (x);
	ret;
}
"""


@dataclass
class Cubin:
    """ELF for a GPU: instructions and constants by kernel, and who calls whom."""

    code: dict[str, bytes]
    constants: dict[str, bytes] = field(default_factory=dict)
    calls: dict[str, list[str]] = field(default_factory=dict)
    graph: list[tuple[str, str]] = field(default_factory=list)  # who calls whom, elsewhere too

    def bytes(self) -> bytes:
        names = [*self.code]
        outside = sorted({called for _, called in self.graph} - {*names})
        known = [*names, *outside]
        texts = b"\0" + b"".join(name.encode() + b"\0" for name in known)
        sections: list[tuple[str, int, int, bytes, int, int]] = [("", 0, 0, b"", 0, 0)]
        symbols = bytes(24)
        for i, name in enumerate(known):
            head = (texts.index(b"\0" + name.encode() + b"\0") + 1, 0x12, 0)
            if name in self.code:
                sections.append((f".text.{name}", 1, 6, self.code[name], 0, 0))
            size = len(self.code.get(name, b""))
            symbols += struct.pack("<IBBHQQ", *head, i + 1 if size else 0, 0, size)
        table = len(names) + 1
        sections.append((".symtab", 2, 0, symbols, table + 1, 0))
        sections.append((".strtab", 3, 0, texts, 0, 0))
        pairs = [
            struct.pack("<II", *(known.index(name) + 1 for name in pair)) for pair in self.graph
        ]
        ends = struct.pack("<II", 0, 0xFFFFFFFF)
        sections.append((".nv.callgraph", 0x70000001, 0, b"".join([ends, *pairs]), table, 0))
        for name, constant in self.constants.items():
            sections.append((f".nv.constant0.{name}", 1, 0x42, constant, 0, names.index(name) + 1))
        for name, called in self.calls.items():
            entries = [struct.pack("<QQq", 16, (names.index(c) + 1) << 32 | 75, 0) for c in called]
            at = names.index(name) + 1
            sections.append((f".rela.text.{name}", 4, 0x40, b"".join(entries), table, at))
        sections.append((".shstrtab", 3, 0, b"", 0, 0))
        strings, offsets = b"", []
        for section in sections:
            offsets.append(len(strings))
            strings += section[0].encode() + b"\0"
        sections[-1] = (".shstrtab", 3, 0, strings, 0, 0)
        body, headers = b"", b""
        for (_, kind, flags, data, link, info), offset in zip(sections, offsets, strict=True):
            place = 64 + len(body), len(data)
            headers += struct.pack("<IIQQQQIIQQ", offset, kind, flags, 0, *place, link, info, 1, 0)
            body += data
        ident = b"\x7fELF\x02\x01\x01\x41\x08".ljust(16, b"\0")
        rest = (2, 190, 1, 0, 0, 64 + len(body), 0, 64, 56, 0, 64, len(sections), len(sections) - 1)
        return ident + struct.pack("<HHIQQQIHHHHHH", *rest) + body + headers


def entry(contents: bytes, kind: int = 2, flags: int = 0, size: int = 0, arch: int = 90) -> bytes:
    """size: when expanded, of compressed contents."""
    padded = contents.ljust(-(-len(contents) // 8) * 8, b"\0")
    packed = len(contents) if size else 0
    head = (kind, 0x101, 64, len(padded), packed, 0, 0, 8, arch, 0, 0, flags, 0, size)
    return struct.pack("<HHIQIIHHIIIQQQ", *head) + padded


def fatbin(*entries: bytes) -> bytes:
    body = b"".join(entries)
    return struct.pack("<IHHQ", 0xBA55ED50, 1, 16, len(body)) + body


def lz4(data: bytes) -> bytes:
    """An LZ4 block that takes one repetition out, if there is one of 20 bytes at its end."""
    repeated = 20 if data[-40:-20] == data[-20:] else 0
    literals = data[: len(data) - repeated]

    def lengths(count: int) -> tuple[int, bytes]:
        if count < 15:
            return count, b""
        return 15, b"\xff" * ((count - 15) // 255) + bytes([(count - 15) % 255])

    nibble, more = lengths(len(literals))
    if not repeated:
        return bytes([nibble << 4]) + more + literals
    low, longer = lengths(repeated - 4)
    return bytes([nibble << 4 | low]) + more + literals + struct.pack("<H", 20) + longer + b"\0"


CODE = {"add": bytes(range(64)), "scale": bytes(range(64, 128)), "helper": b"h" * 32}
NAMES = ["add", "scale", "none"]


def test_kernels_of_a_cubin_have_distinct_checksums() -> None:
    add, scale, none = checksums(Cubin(CODE).bytes(), NAMES)
    assert add and scale and add != scale and none is None
    assert len(add) == 16 and int(add, 16)
    alone = Cubin({"other": b"o" * 16, "add": CODE["add"]}).bytes()
    assert checksums(alone, ["add"]) == [add]  # whatever else is in the module
    changed = Cubin({**CODE, "add": CODE["add"][:-1] + b"!"}).bytes()
    assert checksums(changed, NAMES)[0] != add
    assert checksums(changed, NAMES)[1] == scale


def test_constants_and_called_functions_change_the_checksum() -> None:
    plain = checksums(Cubin(CODE).bytes(), NAMES)
    constant = Cubin(CODE, {"add": b"3.14"}).bytes()
    assert checksums(constant, NAMES)[0] != plain[0]
    assert checksums(constant, NAMES)[1] == plain[1]
    calls = {"scale": ["helper", "scale"]}
    calling = checksums(Cubin(CODE, calls=calls).bytes(), NAMES)
    other = checksums(Cubin({**CODE, "helper": b"H" * 32}, calls=calls).bytes(), NAMES)
    assert calling[0] == other[0] == plain[0]
    assert len({calling[1], other[1], plain[1]}) == 3
    moved = {name: CODE[name] for name in ("helper", "scale", "add")}
    assert checksums(Cubin(moved, calls=calls).bytes(), NAMES) == calling


def test_fatbin_has_the_checksums_of_its_entries() -> None:
    cubin = Cubin({**CODE, "add": b"0123456789abcdefghij" * 4}).bytes()
    plain = checksums(cubin, NAMES)
    assert checksums(fatbin(entry(cubin)), NAMES) == plain
    import zstandard

    packed = zstandard.ZstdCompressor().compress(cubin)
    assert checksums(fatbin(entry(packed, flags=0x8000, size=len(cubin))), NAMES) == plain
    assert checksums(fatbin(entry(lz4(cubin), flags=0x2000, size=len(cubin))), NAMES) == plain


def test_lz4_entries_are_decompressed() -> None:
    text = (PTX + "// " + "repeated twice, yes." * 2).encode()
    packed = lz4(text)
    assert len(packed) < len(text)
    image = fatbin(entry(packed, kind=1, flags=0x2000, size=len(text)))
    assert checksums(image, NAMES) == checksums(text, NAMES) != [None, None, None]


def test_all_architectures_of_a_fatbin_change_the_checksum() -> None:
    one, two = Cubin(CODE).bytes(), Cubin({**CODE, "add": b"other"}).bytes()
    both = checksums(fatbin(entry(one, arch=80), entry(two)), NAMES)
    assert both[0] not in (None, checksums(one, NAMES)[0], checksums(two, NAMES)[0])
    assert checksums(fatbin(entry(two), entry(one, arch=80)), NAMES) == both
    only = fatbin(entry(Cubin({"scale": CODE["scale"]}).bytes(), arch=80), entry(two))
    assert checksums(only, NAMES)[0] == checksums(two, NAMES)[0]


def test_unreadable_entry_gives_no_checksum() -> None:
    good = entry(Cubin(CODE).bytes())
    assert checksums(fatbin(good, entry(b"?" * 40, flags=0x2000, size=50)), NAMES) == [None] * 3
    assert checksums(fatbin(good, entry(b"?" * 40, flags=0x8000, size=50)), NAMES) == [None] * 3
    assert (
        checksums(fatbin(good, entry(b"?" * 40, flags=0x2000, size=1 << 60)), NAMES) == [None] * 3
    )
    assert checksums(fatbin(good, good)[:-8], NAMES) == [None] * 3


def ptx(text: str) -> list[str | None]:
    return checksums(text.encode(), NAMES)


def test_ptx_comments_and_names_do_not_change_the_checksum() -> None:
    add, scale, none = ptx(PTX + HELPERS)
    assert add and scale and add != scale and none is None
    same = [
        PTX.replace("\t", "    ").replace(";", " ;\n"),
        PTX.replace("ret;", "ret; // the end } /*\n") + "/* { */",
        PTX.replace("$L__BB0_2", "$L__BB7_9"),
        PTX.replace("ret;", "$L__tmp5:\n\t.loc 1 17 3\n\tret;"),
        ".visible .entry first()\n{ ret; }\n" + PTX,
        PTX.replace(".version 8.0", ".version 8.1").replace("\n", "\r\n"),
    ]
    for text in same:
        assert ptx(text + HELPERS + "\0\0") == [add, scale, None]


def test_different_ptx_has_a_different_checksum() -> None:
    add, scale, _ = ptx(PTX + HELPERS)
    assert ptx(PTX.replace("%r1", "%r2") + HELPERS)[0] not in (add, None)
    turned = PTX.replace("@%p1", "@!%p1")
    assert ptx(turned + HELPERS)[0] != add
    assert ptx(turned + HELPERS)[1] == scale
    called = HELPERS.replace("0f3FC00000", "0f40000000")
    assert ptx(PTX + called)[0] == add
    assert ptx(PTX + called)[1] not in (scale, None)
    assert ptx(PTX.replace("{", ";", 1))[0] is None  # only declared


def test_damaged_images_give_no_checksum() -> None:
    random = np.random.default_rng(3)
    zstandard = pytest.importorskip("zstandard")
    cubin = Cubin(CODE, {"add": b"abc"}, {"scale": ["helper"]}).bytes()
    packed = zstandard.ZstdCompressor().compress(cubin)
    images = [
        cubin,
        fatbin(entry(cubin), entry(PTX.encode(), kind=1)),
        fatbin(entry(packed, flags=0x8000, size=len(cubin))),
        fatbin(entry(lz4(cubin), flags=0x2000, size=len(cubin))),
        (PTX + HELPERS).encode(),
    ]
    for image in images:
        for cut in range(0, len(image), 7):
            checksums(image[:cut], NAMES)
        for _ in range(400):
            raw = bytearray(image)
            for at in random.integers(0, len(raw), int(random.integers(1, 6))):
                raw[at] = int(random.choice([0, 0xFF, int(random.integers(256))]))
            found = checksums(bytes(raw), NAMES)
            assert len(found) == 3 and all(f is None or len(f) == 16 for f in found)


HOSTILE = {
    "comments": b"/*" * 500_000,
    "entries": b".entry x{}" * 100_000,
    "functions": b".func (" * 100_000,
    "braces": b".entry add{" * 100_000,
    "names": b".entry " + b"a" * 1_000_000,
    "labels": b".entry add{" + b"".join(b"l%d: bra l%d;" % (i, i) for i in range(60_000)) + b"}",
    "calls": b"".join(b".func f%d{call f%d;}" % (i, i + 1) for i in range(30_000))
    + b".entry add{call f0;}",
}


@pytest.mark.sampled
@pytest.mark.parametrize("image", HOSTILE.values(), ids=HOSTILE)
def test_hostile_text_is_read_quickly(image: bytes) -> None:
    began = time.process_time()
    checksums(image, NAMES)
    assert time.process_time() - began < 5


def test_hostile_cubin_gives_no_checksum() -> None:
    """Very many sections, all of them all of the file."""
    cubin = Cubin({f"k{i}": bytes(100) for i in range(2000)}, calls={"k0": ["k1"] * 5000}).bytes()
    header = np.frombuffer(cubin[:64], "<u8")
    at, raw = int(header[5]), bytearray(cubin)
    for i in range(1, 2001):
        raw[at + 64 * i + 24 : at + 64 * i + 40] = struct.pack("<QQ", 0, len(cubin))
    began = time.process_time()
    found = checksums(bytes(raw), [f"k{i}" for i in range(2000)])
    assert None in found
    assert time.process_time() - began < 10


# ---- of runs ----


def run_with(path: Path, image: bytes | None, name: str = "add") -> Path:
    w = Writer(path)
    w.module(0, kind="cubin")
    w.function(0, name)
    w.function(1, "from nowhere", module=layout.NO_ID)
    digest = xxhash.xxh3_64_intdigest(image or b"")
    edit(w.path / "modules.bin", 0, image=digest if image else 0)
    reseal_records(w.path / "modules.bin")
    if image:
        (w.path / "modules").mkdir()
        (w.path / "modules" / f"{digest:016x}").write_bytes(image)
    w.close()
    return path


def test_functions_of_a_run_have_checksums(tmp_path: Path) -> None:
    cubin = Cubin(CODE).bytes()
    functions = tt.open(run_with(tmp_path / "a", cubin)).functions
    assert functions["checksum"].tolist()[0] == checksums(cubin, ["add"])[0]
    assert functions["checksum"].isna().tolist() == [False, True]
    again = tt.open(run_with(tmp_path / "b", fatbin(entry(cubin)))).functions
    assert again["checksum"].tolist()[0] == functions["checksum"].tolist()[0]


def test_unsaved_code_has_no_checksum(tmp_path: Path) -> None:
    unsaved = tt.open(run_with(tmp_path / "a", None)).functions
    assert unsaved["checksum"].isna().all()
    missing = run_with(tmp_path / "b", Cubin(CODE).bytes())
    (image,) = (missing / "p0" / "modules").iterdir()
    image.unlink()
    assert tt.open(missing).functions["checksum"].isna().all()


def test_replaced_image_is_refused(tmp_path: Path) -> None:
    path = run_with(tmp_path / "run", Cubin(CODE).bytes())
    (image,) = (path / "p0" / "modules").iterdir()
    image.write_bytes(b"something else")
    with pytest.raises(tt.FormatError, match=f"{image.name}.*the digest of the image"):
        _ = tt.open(path).functions
