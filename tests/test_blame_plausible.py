"""blame --watch where nobody named a region: what memory plausibly holds, and what appeared."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from tests.rundir import Writer
from tests.support import Cli
from ttanalyze.core.values import TYPES, parse
from ttanalyze.format import open_run
from ttanalyze.format.layout import BLOCK_SIZE
from ttanalyze.verbs.blame import Condition, watch
from ttanalyze.verbs.blame.plausible import PAGE, half_type, halves_alike, looks_like, pages_apart

NAN = np.array([np.nan], "f4").tobytes()


def ordinary(seed: int, items: int = BLOCK_SIZE // 4) -> bytes:
    """Numbers as programs have them."""
    return np.random.default_rng(seed).standard_normal(items).astype("f4").tobytes()


def found(cli: Cli, run: Path, *options: str) -> dict[str, Any]:
    said: dict[str, Any] = json.loads(
        cli("blame", run, "--dtype", "f32", "--watch", "nan", "--json", *options).stdout
    )
    return said


def where(said: dict[str, Any]) -> tuple[int, dict[int, list[int]]] | None:
    if said["found"] is None:
        return None
    hits = {hit["region"]: hit["first"] for hit in said["found"]["hits"]}
    return said["found"]["epoch"], hits


def test_random_bits_are_not_taken_for_numbers(cli: Cli, run_path: Path) -> None:
    """A generator's table has a NaN in every 256 words; the weights get theirs in epoch 3."""
    w = Writer(run_path)
    random = np.random.default_rng(3)
    w.born(0, random.bytes(BLOCK_SIZE), label="states")
    w.born(1, ordinary(1), label="weights")
    w.born(2, np.arange(-5, 1000, dtype="i4").tobytes(), label="index")
    w.epoch("sync", "full")
    for epoch in range(1, 5):
        w.write(0, 0, random.bytes(BLOCK_SIZE))
        w.write(2, 4 * epoch, np.array([-1], "i4").tobytes())
        if epoch == 3:
            w.write(1, 44, NAN)
        w.epoch("sync")
    w.close()
    said = found(cli, run_path)
    assert where(said) == (3, {1: [11]})
    assert said["skipped"] == {"unlike": [0, 2], "early": []}
    shown = cli("blame", run_path, "--dtype", "f32", "--watch", "nan").stdout
    assert (
        "skipped regions 0 'states', 2 'index': contents do not look like f32 (--all searches them)"
    ) in shown.splitlines()
    everywhere = where(found(cli, run_path, "--all"))
    assert everywhere is not None and everywhere[0] == 0
    assert where(found(cli, run_path, "-r", "index")) == (0, {2: [0, 1, 2, 3, 4]})
    large = cli("blame", run_path, "--dtype", "f32", "--watch", ">1e20", "--json")
    assert json.loads(large.stdout)["found"] is None


def test_existing_nan_is_not_reported_as_new(cli: Cli, run_path: Path) -> None:
    w = Writer(run_path)
    w.born(0, ordinary(1))
    w.write(0, 400, NAN)
    w.epoch("sync", "full")  # 0
    w.write(0, 0, ordinary(2, 8))
    w.epoch("sync")  # 1: it is as it was
    w.epoch("sync", "full")  # 2
    w.write(0, 400, ordinary(3, 1))
    w.epoch("sync")  # 3: and a number now
    w.write(0, 400, NAN * 2)
    w.epoch("sync")  # 4
    w.write(0, 800, NAN)
    w.epoch("sync")  # 5
    w.close()
    said = found(cli, run_path)
    assert where(said) == (4, {0: [100, 101]})
    assert said["skipped"] == {"unlike": [], "early": [0]}
    shown = cli("blame", run_path, "--dtype", "f32", "--watch", "nan").stdout
    assert "skipped items that were nan before, in region 0 (--all shows it)" in shown
    assert where(found(cli, run_path, "-e", "5-")) == (5, {0: [200]})
    assert where(found(cli, run_path, "-e", "1-3")) is None
    assert where(found(cli, run_path, "--all")) == (0, {0: [100]})
    assert where(found(cli, run_path, "-r", "0", "-e", "1-")) == (1, {0: [100]})


def test_new_region_may_start_with_nan(cli: Cli, run_path: Path) -> None:
    w = Writer(run_path)
    w.born(0, ordinary(1))
    w.epoch("sync", "full")
    w.epoch("sync")
    w.born(1, NAN + ordinary(2))
    w.epoch("sync")
    w.close()
    assert where(found(cli, run_path)) == (2, {1: [0]})


def test_overflowed_numbers_count_as_numbers(cli: Cli, run_path: Path) -> None:
    w = Writer(run_path)
    w.born(0, ordinary(1))
    w.epoch("sync", "full")
    w.write(0, 0, np.full(BLOCK_SIZE // 4, 1e30, "f4").tobytes())
    w.write(0, 8, NAN)
    w.epoch("sync")
    w.close()
    assert where(found(cli, run_path)) == (1, {0: [2]})


def test_nan_among_zeros_is_found(cli: Cli, run_path: Path) -> None:
    w = Writer(run_path)
    w.born(0, bytes(BLOCK_SIZE))
    w.epoch("sync", "full")
    w.write(0, 4, NAN * 3)
    w.epoch("sync")
    w.close()
    assert where(found(cli, run_path)) == (1, {0: [1, 2, 3]})


def test_tensor_names_decide_the_type(cli: Cli, run_path: Path) -> None:
    """Of one block: random bits that are f32 by name, and numbers that are i32 by name."""
    w = Writer(run_path)
    random = np.random.default_rng(1)
    w.born(0, random.bytes(256) + ordinary(1, 64) + ordinary(2, 64))
    w.name(0, 0, 256, "bits", "f32")
    w.name(0, 256, 256, "counts", "i32")
    w.epoch("sync", "full")
    w.write(0, 300, NAN)
    w.epoch("sync")
    w.write(0, 20, bytes(8))
    w.epoch("sync")
    w.write(0, 20, NAN)
    w.epoch("sync")
    w.close()
    said = found(cli, run_path)
    assert where(said) == (3, {0: [5]})
    assert said["found"]["hits"][0]["tensor"] == "bits"
    assert said["skipped"]["unlike"] == [0]


@pytest.mark.parametrize("name", [n for n in TYPES if TYPES[n].kind in ("float", "complex")])
def test_plausible_numbers_are_recognised(name: str) -> None:
    kind = parse(name)
    random = np.random.default_rng(7)
    every = np.ones(256, bool)
    bits = np.frombuffer(random.bytes(256 * kind.itemsize), "u1")
    assert looks_like(kind, bits, every) is False
    one = {1: {"e4m3": b"\x38", "e5m2": b"\x3c"}.get(name, b""), 2: b"\x00\x3c"}
    one |= {4: np.float32(1).tobytes(), 8: np.float64(1).tobytes()}
    unit = {"bf16": b"\x80\x3f", "c64": one[4] + one[4], "c128": one[8] + one[8]}
    ones = np.frombuffer(unit.get(name, one.get(kind.itemsize, b"")) * 256, "u1")
    assert looks_like(kind, ones, every) is True
    assert looks_like(kind, np.zeros(256 * kind.itemsize, "u1"), every) is None
    half = np.concatenate([ones[: len(ones) // 2], bits[: len(bits) // 2]])
    assert looks_like(kind, half, np.arange(256) < 128) is True


def sixteen_bits(name: str, numbers: np.ndarray[Any, Any]) -> bytes:
    if name == "f16":
        return numbers.astype("f2").tobytes()
    return ((numbers.astype("f4").view("u4") + 0x8000) >> 16).astype("u2").tobytes()


NUMBERS: dict[str, Callable[[np.random.Generator, int], Any]] = {
    "normal": lambda random, n: random.standard_normal(n),
    "weights": lambda random, n: 0.02 * random.standard_normal(n),
    "sparse": lambda random, n: np.maximum(random.standard_normal(n), 0),
    "uniform": lambda random, n: random.random(n),
    "sorted": lambda random, n: np.sort(random.standard_normal(n)),
    "wide": lambda random, n: 0.01 * random.lognormal(0, 2, n),
    "positive": lambda random, n: 1 + np.abs(random.standard_normal(n)),
}
OTHERS: dict[str, Callable[[np.random.Generator], Any]] = {
    "i32": lambda random: random.integers(0, 50_000, 8192).astype("i4"),
    "i16": lambda random: random.integers(0, 30_000, 8192).astype("i2"),
    "i8": lambda random: random.integers(-90, 90, 8192).astype("i1"),
    "u8": lambda random: np.clip(random.normal(128, 40, 8192), 0, 255).astype("u1"),
    "addresses": lambda random: 0x7F0000000000 + 512 * random.integers(0, 1 << 30, 4096),
    "random bits": lambda random: random.integers(0, 1 << 32, 8192).astype("u4"),
    "text": lambda random: random.choice(np.frombuffer(b"ABCDEFGHIJKLM ,.", "u1"), 8192),
    "constant": lambda random: np.full(8192, 3.7, "f2"),
    "few": lambda random: random.standard_normal(200).astype("f2"),
    "nan": lambda random: np.full(8192, np.nan, "f2"),
    "f32": lambda random: random.standard_normal(8192).astype("f4"),
    "f64": lambda random: random.standard_normal(8192),
}


@pytest.mark.parametrize("name", ["f16", "bf16"])
@pytest.mark.parametrize("numbers", NUMBERS)
@pytest.mark.parametrize(("size", "seeds"), [(BLOCK_SIZE, 20), (PAGE, 100)])
def test_numbers_of_16_bits_are_recognised(name: str, numbers: str, size: int, seeds: int) -> None:
    for seed in range(seeds):
        made = NUMBERS[numbers](np.random.default_rng(seed), size // 2)
        assert half_type(np.frombuffer(sixteen_bits(name, made), "u1")) == name
        wide = made.astype("f4").tobytes(), made.tobytes()
        assert all(half_type(np.frombuffer(raw[:size], "u1")) is None for raw in wide)


@pytest.mark.parametrize("name", OTHERS)
def test_other_memory_is_not_taken_for_numbers_of_16_bits(name: str) -> None:
    for seed in range(20):
        raw = OTHERS[name](np.random.default_rng(seed)).tobytes()
        pages = [raw[first : first + PAGE] for first in range(0, len(raw), PAGE)]
        assert all(half_type(np.frombuffer(part, "u1")) is None for part in (raw, *pages))


def test_pages_of_a_block_are_judged_as_each_alone() -> None:
    """A page of each sort of memory, and a second one of which a part was written."""
    random = np.random.default_rng(11)
    made = [OTHERS[name](random).tobytes() for name in OTHERS if name != "few"]
    made += [sixteen_bits(name, NUMBERS["normal"](random, PAGE)) for name in ("f16", "bf16")]
    block = np.frombuffer(b"".join((raw * 4)[:PAGE] for raw in made) + bytes(100), "u1")
    old = block.copy()
    for first in range(0, len(made) * PAGE, PAGE):
        words = old[first : first + PAGE].view("u4")
        words[random.random(len(words)) < 0.5] += 1
    words, before = block[:-100].view("u4"), old[:-100].view("u4")
    for given in (None, old):
        changed = np.ones(len(words), bool) if given is None else words != before
        pages = zip(words.reshape(-1, PAGE // 4), changed.reshape(-1, PAGE // 4), strict=True)
        alone = [halves_alike(page[of].view("u1")) for page, of in pages]
        assert pages_apart(block, given).tolist() == [one is False for one in alone]
        assert {True, False} <= set(alone)


@pytest.mark.parametrize("wide", ["f4", "f8"])
@pytest.mark.parametrize("name", ["f16", "bf16"])
@pytest.mark.parametrize("items", [1, 700, 4096])
def test_wide_infinity_in_a_pool_is_not_nan_of_16_bits(
    name: str, wide: str, items: int, run_path: Path
) -> None:
    """A pool gives the memory of numbers of 16 bits to a tensor of another type."""
    w, random = Writer(run_path), np.random.default_rng(5)
    half = random.standard_normal(BLOCK_SIZE // 2)
    w.born(0, sixteen_bits(name, half))
    w.epoch("sync", "full")
    w.write(0, 8192, np.full(items, np.inf, wide).tobytes())
    w.epoch("sync")
    w.close()
    process = open_run(run_path).process(0)
    for word in ("nan", "inf"):
        condition = Condition.parse(word, parse(name))
        assert watch(process, condition, strict=True).sighting is None
    condition = Condition.parse("inf", parse(wide.replace("4", "32").replace("8", "64")))
    found = watch(process, condition, strict=True).sighting
    assert found is not None and found.hits[0].items == items


@pytest.mark.parametrize("name", ["f16", "bf16"])
def test_nan_of_16_bits_is_not_seen_as_f32(name: str, cli: Cli, run_path: Path) -> None:
    """The upper half of a word is NaN: as f32 the word is, too."""
    w = Writer(run_path)
    numbers = np.random.default_rng(1).standard_normal(BLOCK_SIZE // 2)
    w.born(0, sixteen_bits(name, numbers))
    w.epoch("sync", "full")
    w.write(0, 6, sixteen_bits(name, np.array([np.nan])))
    w.epoch("sync")
    w.close()
    assert found(cli, run_path)["found"] is None
    assert where(found(cli, run_path, "--dtype", name)) == (1, {0: [3]})
