"""Kernel names as the source has them, whatever name a file holds."""

from __future__ import annotations

import os
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from ttanalyze.code import demangle
from ttanalyze.code.demangle import short

COPY = (
    "_ZN2at6native29vectorized_elementwise_kernelILi4EZZZNS0_23direct_copy_kernel_cudaERNS_18Tensor"
    "IteratorBaseEENKUlvE_clEvENKUlvE5_clEvEUlfE_St5arrayIPcLm2EEEEviT0_T1_"
)
LAMBDA = (
    "at::native::direct_copy_kernel_cuda(at::TensorIteratorBase&)::{lambda()#1}::operator()() const"
    "::{lambda()#7}::operator()() const::{lambda(float)#1}"
)
NAMES = [
    ("_Z3addPfS_i", "add(float*, float*, int)", "add"),
    ("scale", "scale", "scale"),
    ("triton_poi_fused_add_0", "triton_poi_fused_add_0", "triton_poi_fused_add_0"),
    (
        COPY,
        f"void at::native::vectorized_elementwise_kernel<4, {LAMBDA}, std::array<char*, 2ul> >"
        f"(int, {LAMBDA}, std::array<char*, 2ul>)",
        "at::native::vectorized_elementwise_kernel",
    ),
    (
        "_ZN12_GLOBAL__N_13fooIfEEvPT_",
        "void (anonymous namespace)::foo<float>(float*)",
        "(anonymous namespace)::foo",
    ),
    (
        "_ZZ4mainENKUliE_clEi",
        "main::{lambda(int)#1}::operator()(int) const",
        "main::{lambda#1}::operator()",
    ),
    (
        "_ZZN3fooEiENKUlfE0_clEf",
        "foo(int)::{lambda(float)#2}::operator()(float) const",
        "foo()::{lambda#2}::operator()",
    ),
    ("_ZN1AlsERKS_", "A::operator<<(A const&)", "A::operator<<"),
    ("_ZN1AIiEltERKS0_", "A<int>::operator<(A<int> const&)", "A<int>::operator<"),
    ("_ZN1AptEv", "A::operator->()", "A::operator->"),
    ("_ZN1AcviEv", "A::operator int()", "A::operator int"),
    ("_Z6kernelILb1EEvPKf.kd", "void kernel<true>(float const*) [clone .kd]", "kernel"),
    ("_Z4cubeIXgtLi3ELi2EEEvv", "void cube<((3)>(2))>()", "cube"),
    ("_Z11my_operatorIiEvv", "void my_operator<int>()", "my_operator"),
]


@pytest.fixture(autouse=True)
def forgetful() -> Iterator[None]:
    """What one test asked for is not known in the next."""
    demangle._known.clear()
    yield
    demangle._known.clear()


def test_kernel_names_are_demangled() -> None:
    mangled = [name for name, _, _ in NAMES]
    assert demangle.demangle(mangled) == [name for _, name, _ in NAMES]
    assert demangle.missing() is None


def test_invalid_name_does_not_mark_the_demangler_missing() -> None:
    assert demangle.missing() is None
    assert demangle.demangle(["_Zqqq"]) == ["_Zqqq"]
    assert demangle.missing() is None


@pytest.mark.parametrize(("name", "expected"), [(full, brief) for _, full, brief in NAMES])
def test_names_are_shortened(name: str, expected: str) -> None:
    assert short(name) == expected.replace("A<int>", "A")
    assert short(short(name)) == short(name)


@pytest.mark.parametrize("text", ["function 3", "a<b>", "after step 3", "sum (all)", "f<int>"])
def test_other_texts_are_not_shortened(text: str) -> None:
    assert short(text) == text


def test_each_name_is_demangled_once(monkeypatch: pytest.MonkeyPatch) -> None:
    assert demangle.demangle(["_Z1fi", "_Z1fi"]) == ["f(int)"] * 2
    monkeypatch.setattr(sys, "executable", "/nothing")
    assert demangle.demangle(["_Z1fi", "plain"]) == ["f(int)", "plain"]


@pytest.mark.skipif(not shutil.which("c++filt"), reason="c++filt takes names of any length")
def test_very_long_names() -> None:
    words = [f"name{i:04d}" for i in range(600)]
    mangled = "_ZN" + "".join(f"8{w}" for w in words) + "Ev"
    assert demangle.demangle([mangled, "_Z1gi"]) == ["::".join(words) + "()", "g(int)"]


def explosive(levels: int) -> str:
    """A name whose text doubles with each level: A<A<A<…>, A<…> >, …>."""
    digits = "0123456789ABCDEFGHIJKLMNOPQRSTUVWXYZ"

    def earlier(number: int) -> str:
        high, low = divmod(number - 1, 36)
        return f"S{digits[high] if high else ''}{digits[low]}_"

    out = "_Z1f1AIiE"
    for level in range(levels):
        out += f"S_I{earlier(level + 1) * 2}E"
    return out


def test_hostile_names_stay_mangled() -> None:
    hostile = [explosive(levels) for levels in range(26, 36)]
    hostile += [
        "_Z" + "P" * 30000,
        "_Z1f" + "P" * 31000 + "i",
        "_Z",
        "_Z\n",
        "_Z1f\0i",
        "_Z999999f",
    ]
    hostile += ["_Z1f" + "DpT_" * 500, "_ZN" * 5000, "", "\x1b[2J", "_Zé", "_Z1fi\udcff", "_Z99f"]
    began = sum(os.times()[:4])
    found = demangle.demangle(["_Z1gi", *hostile, "_Z1hi"])
    assert sum(os.times()[:4]) - began < 15  # of processors, helpers included
    assert found == ["g(int)", *hostile, "h(int)"]
    assert demangle.demangle([explosive(3)]) != [explosive(3)], "a small one is a name"


@pytest.mark.parametrize(
    "name", ["<", ">", "f<", "f<(>", "f(", ")f", "{", "}", "operator", "a b c", "(" * 10000, ""]
)
def test_shortening_accepts_any_text(name: str) -> None:
    assert isinstance(short(name), str)
    assert bool(short(name)) == bool(name)


def test_names_stay_mangled_without_the_cxx_runtime(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setattr(demangle, "RUNTIME", "import sys; sys.exit(3)")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert demangle.demangle(["_Z1fi"]) == ["_Z1fi"]
    assert "stay mangled" in str(demangle.missing())
