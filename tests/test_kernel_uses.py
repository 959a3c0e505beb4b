"""What kernels use besides memory, from images that are made here."""

from __future__ import annotations

import random
import struct

import pytest

from tests.test_kernel_checksums import Cubin, entry, fatbin
from ttanalyze.code import uses

PTX = """
.version 8.0
.target sm_70
.extern .func (.param .b32 r) vprintf (.param .b64 f, .param .b64 a);
.visible .func helper() { call.uni (r), vprintf, (f, a); ret; }
.visible .entry plain(.param .u64 p) { ld.param.u64 %rd1, [p]; ret; } // tex.1d in words only
.visible .entry says(.param .u64 p) { call.uni helper; ret; }
.visible .entry looks(.param .u64 t) { tex.1d.v4.f32.s32 {%f1, %f2, %f3, %f4}, [%rd1, {%r1}]; ret; }
.visible .entry writes(.param .u64 s) { sust.b.1d.b32.trap [%rd1, {%r1}], {%r2}; ret; }
.visible .entry allocates() { call.uni (r), malloc, (n); ret; }
.visible .entry launches() { call.uni (r), cudaLaunchDeviceV2, (a, b); ret; }
"""
ADD, TEX, SULD = 0x0000000000017A21, 0x0000000000057F66, 0x00FF000000007F99  # sm_90


def instructions(*first: int) -> bytes:
    return b"".join(struct.pack("<QQ", word, 0x1234567812340166) for word in first)


CODE = {
    "plain": instructions(ADD, ADD),
    "looks": instructions(ADD, TEX),
    "writes": instructions(SULD),
    "says": instructions(ADD),
    "helper": instructions(ADD, TEX),
}
GRAPH = [
    ("says", "helper"),
    ("helper", "vprintf"),
    ("looks", "malloc"),
    ("writes", "__cudaCDP2Launch"),
]


def test_uses_of_ptx() -> None:
    image = PTX.encode() + b"\0"
    assert uses(image, "plain") == set()
    assert uses(image, "says") == {"printf"}
    assert uses(image, "looks") == {"textures"}
    assert uses(image, "writes") == {"surfaces"}
    assert uses(image, "allocates") == {"heap"}
    assert uses(image, "launches") == {"launches"}
    assert uses(image, "helper") is uses(image, "none") is None


def test_uses_of_machine_code() -> None:
    image = Cubin(CODE, graph=GRAPH).bytes()
    assert uses(image, "plain") == set()
    assert uses(image, "says") == {"printf", "textures"}
    assert uses(image, "looks") == {"textures", "heap"}
    assert uses(image, "writes") == {"surfaces", "launches"}
    assert uses(image, "none") is None


def test_uses_of_a_fatbin_are_those_of_all_entries() -> None:
    cubin = Cubin({"plain": CODE["plain"]}).bytes()
    other = Cubin({"plain": CODE["looks"]}).bytes()
    assert uses(fatbin(entry(cubin), entry(b"?" * 8, flags=0x8000, size=9)), "plain") == set()
    assert uses(fatbin(entry(cubin), entry(other)), "plain") == {"textures"}
    assert uses(fatbin(entry(cubin), entry(PTX.encode(), kind=1)), "looks") == {"textures"}
    assert uses(fatbin(), "plain") is None


@pytest.mark.parametrize("seed", range(4))
def test_damaged_images_give_an_answer(seed: int) -> None:
    """Whatever an image holds, there is an answer."""
    image = Cubin(CODE, graph=GRAPH).bytes()
    chance = random.Random(seed)
    for _ in range(100):
        damaged = bytearray(image)
        for _ in range(chance.randrange(1, 4)):
            damaged[chance.randrange(len(image))] = chance.randrange(256)
        for part in (damaged, damaged[: chance.randrange(len(image))]):
            found = uses(bytes(part), "says")
            assert found is None or isinstance(found, set)
