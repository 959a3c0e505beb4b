"""Our own XXH3-64, in C and over arrays, equals the xxhash package's."""

from __future__ import annotations

import random
import subprocess
from pathlib import Path
from typing import Any

import cffi
import numpy as np
import pytest
import xxhash

from ttanalyze.format.digest import digests_of_spans

INTERPOSE = Path(__file__).resolve().parent.parent / "interpose"
SOURCE = """#include "util/xxh3.h"
uint64_t digest(const void *data, size_t length) { return xxh3_64(data, length); }
"""
LENGTHS = [*range(2049), 65535, 65536, 65537, 1_000_000]


@pytest.fixture(scope="module", params=["-O0", "-O2", "-O3"])
def library(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[cffi.FFI, Any]:
    folder = tmp_path_factory.mktemp("xxh3")
    (folder / "digest.c").write_text(SOURCE)
    flags = ["-std=gnu11", "-Wall", "-Wextra", "-Werror", "-shared", "-fPIC", str(request.param)]
    command = [
        "gcc",
        *flags,
        f"-I{INTERPOSE}",
        "-o",
        str(folder / "digest.so"),
        str(folder / "digest.c"),
    ]
    subprocess.run(command, check=True)
    ffi = cffi.FFI()
    ffi.cdef("uint64_t digest(const void *, size_t);")
    return ffi, ffi.dlopen(str(folder / "digest.so"))


@pytest.mark.parametrize("shift", [0, 1, 4, 7])
def test_digest_equals_the_xxhash_package(library: tuple[cffi.FFI, Any], shift: int) -> None:
    ffi, lib = library
    data = random.Random(shift).randbytes(max(LENGTHS))
    memory = ffi.new("char[]", len(data) + 16)
    ffi.memmove(memory + shift, data, len(data))
    wrong = [
        n for n in LENGTHS if lib.digest(memory + shift, n) != xxhash.xxh3_64_intdigest(data[:n])
    ]
    assert wrong == []


def test_digest_reads_only_the_data(library: tuple[cffi.FFI, Any]) -> None:
    ffi, lib = library
    data = random.Random(9).randbytes(2048)
    for n in range(1, 2049):
        exact = ffi.new("char[]", n + 2)
        digests = []
        for fill in (b"\x00", b"\xff"):
            ffi.memmove(exact, fill + data[:n] + fill, n + 2)
            digests.append(lib.digest(exact + 1, n))
        assert digests[0] == digests[1] == xxhash.xxh3_64_intdigest(data[:n])


@pytest.mark.parametrize("longest", [8, 300, 5000])  # what it hashes by another way is longer
def test_digests_of_many_spans(longest: int) -> None:
    random_ = np.random.default_rng(1)
    raw = random_.bytes(20_000)
    begins = random_.integers(0, len(raw) - longest, 1000)
    ends = begins + random_.integers(longest - 8, longest + 1, 1000)
    spans = zip(begins.tolist(), ends.tolist(), strict=True)
    one_by_one = [xxhash.xxh3_64_intdigest(raw[a:b]) for a, b in spans]
    assert digests_of_spans(raw, begins, ends).tolist() == one_by_one
    assert digests_of_spans(raw, begins[:0], ends[:0]).tolist() == []
