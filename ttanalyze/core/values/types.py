"""What items of memory are: how to decode them, and how they are ordered."""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

from ttanalyze.errors import Error
from ttanalyze.format.layout import Array

PIECE = 1 << 20  # bytes looked at at a time; all itemsizes divide it
Number = int | float


@dataclass(frozen=True)
class Type:
    """What items of memory are. kind: "float", "int", "bool" or "complex"."""

    name: str
    itemsize: int
    kind: str

    def view(self, raw: Array) -> Array:
        """The items: numpy's own types, and float32 for those that numpy doesn't have.

        Raises Error where the bytes don't divide into items.
        """
        if len(raw) % self.itemsize:
            rest = len(raw) % self.itemsize
            raise Error(
                f"{len(raw)} bytes don't divide into {self.name} items of {self.itemsize}: "
                f"{rest} are left over"
            )
        raw = np.ascontiguousarray(raw)
        if self.name == "bool":
            return np.asarray(raw != 0)
        if self.name == "bf16":
            wide: Array = raw.view("<u2").astype("<u4") << np.uint32(16)
            return wide.view("<f4")
        if self.itemsize == 1 and self.kind == "float":
            return np.asarray(_small_floats(self.name)[raw])
        return raw.view(_NUMPY[self.name])

    def parts(self, raw: Array) -> Array:
        """The items as rows: of two numbers where they are complex, else of one."""
        values = self.view(raw)
        if self.kind == "complex":
            return values.view(values.real.dtype).reshape(-1, 2)
        return values.reshape(-1, 1)

    def to_float(self, raw: Array) -> Array:
        """The items as float64, of complex ones the absolute values, infinite where these are more
        than float64 holds. Raises Error as view does.
        """
        values = self.view(raw)
        with np.errstate(invalid="ignore", over="ignore"):  # signalling NaNs become quiet ones
            if self.kind == "complex":
                values = np.hypot(values.real.astype("f8"), values.imag.astype("f8"))
            return values.astype("f8")

    def ordinals(self, raw: Array) -> Array:
        """int64 that ascend with the values, neighbours one apart, both zeros 0 (unsigned
        64-bit integers minus 2**63). Complex items give a row of two; those of NaNs mean nothing.
        Raises Error as view does.
        """
        if self.kind in ("float", "complex"):
            bits = self._bits(raw)
            magnitude = (bits & self._magnitude).astype("i8")
            out: Array = np.where(bits > self._magnitude, -magnitude, magnitude)
            return out.reshape(-1, 2) if self.kind == "complex" else out
        values = self.view(raw)
        if self.name == "u64":
            values = (values ^ np.uint64(1 << 63)).view("i8")
        return values.astype("i8")

    def is_nan(self, raw: Array) -> Array:
        """Which items are NaN; of complex ones, those with a part that is."""
        return self._where(raw, lambda bits: bits & self._magnitude > self._last_number)

    def is_inf(self, raw: Array) -> Array:
        """Which items are infinite: not NaN, and of complex ones at least one part is."""
        infinity = _INFINITY.get(self._part)
        if infinity is None:
            return np.zeros(len(raw) // self.itemsize, bool)
        out = self._where(raw, lambda bits: bits & self._magnitude == infinity)
        if self.kind == "complex":
            out &= ~self.is_nan(raw)
        return out

    def nearest(self, value: float) -> float:
        """The item of a float type that a number is rounded to, ties to even; infinity for those
        that are too large, whether the type has one or not.
        """
        if self.name in _NUMPY:
            with np.errstate(over="ignore"):
                return float(np.dtype(_NUMPY[self.name]).type(value))
        every = np.arange(1 << (8 * self.itemsize - 1), dtype=self._bits_type)  # from 0 on
        values = self.to_float(every.view("u1"))
        values = values[np.isfinite(values)]
        # What comes next would be as far from the largest as that from the one before.
        values = np.append(values, 2 * values[-1] - values[-2])
        distance = np.abs(values - abs(value))
        near = np.flatnonzero(distance == distance.min())
        best = min(near.tolist(), key=lambda i: int(i) & 1)
        over = best == len(values) - 1 or abs(value) > values[-1]
        return math.copysign(math.inf if over else float(values[best]), value)

    def limits(self) -> tuple[int, int]:
        """The least and the greatest item of a type of integers, or of bool."""
        if self.kind == "bool":
            return 0, 1
        known = np.iinfo(_NUMPY[self.name])
        return int(known.min), int(known.max)

    def text(self, value: Any) -> str:
        """An item of view() in the fewest digits that tell it from its neighbours."""
        return f"{float(value):.4g}" if self.name == "bf16" else str(value)

    def texts(self, data: bytes) -> list[str]:
        """Each item of some bytes as text. Raises Error as view does."""
        return [self.text(value) for value in self.view(np.frombuffer(data, "u1"))]

    def listed(self, data: bytes) -> list[Any]:
        """Each item of some bytes as JSON can have it: "nan", "inf" and "-inf" as texts, complex
        ones as two numbers. Raises Error as view does.
        """
        values = self.view(np.frombuffer(data, "u1"))
        if self.kind == "complex":
            parts = [_listed(part) for part in (values.real, values.imag)]
            return [list(pair) for pair in zip(*parts, strict=True)]
        return _listed(values)

    @property
    def numpy(self) -> str:
        """The numpy type of its items, of those that numpy doesn't have that of their bits."""
        if self.name == "bool":
            return "|b1"
        return _NUMPY.get(self.name, "<u2" if self.itemsize == 2 else "|u1")

    # ---- as bits ----

    @property
    def _part(self) -> str:
        return {"c64": "f32", "c128": "f64"}.get(self.name, self.name)

    @property
    def _bits_type(self) -> np.dtype[Any]:
        """Unsigned integers as wide as an item; of complex ones, as a part."""
        return np.dtype(f"<u{self.itemsize // (2 if self.kind == 'complex' else 1)}")

    def _bits(self, raw: Array) -> Array:
        return np.ascontiguousarray(raw).view(self._bits_type)

    @property
    def _magnitude(self) -> Any:
        """The mask of all bits but the sign, in the type of the bits."""
        return self._bits_type.type((1 << (8 * self._bits_type.itemsize - 1)) - 1)

    @property
    def _last_number(self) -> Any:
        """The bits above which a float without its sign is NaN."""
        return self._bits_type.type(_INFINITY.get(self._part, 0x7E))

    def _where(self, raw: Array, test: Callable[[Array], Array]) -> Array:
        if self.kind not in ("float", "complex"):
            return np.zeros(len(raw) // self.itemsize, bool)
        found = test(self._bits(raw))
        return np.asarray(found.reshape(-1, 2).any(axis=1)) if self.kind == "complex" else found


def _listed(values: Array) -> list[Any]:
    return [v if not isinstance(v, float) or math.isfinite(v) else str(v) for v in values.tolist()]


_NUMPY = {
    "f16": "<f2",
    "f32": "<f4",
    "f64": "<f8",
    "c64": "<c8",
    "c128": "<c16",
    **{f"{sign}{8 * size}": f"<{sign}{size}" for sign in "iu" for size in (1, 2, 4, 8)},
}
# Bits of infinity. e4m3 has none: all ones, which would follow its last number 0x7e, are NaN.
_INFINITY = {"f16": 0x7C00, "bf16": 0x7F80, "f32": 0x7F800000, "f64": 0x7FF << 52, "e5m2": 0x7C}

TYPES = {
    t.name: t
    for t in (
        *(Type(f"f{8 * size}", size, "float") for size in (2, 4, 8)),
        Type("bf16", 2, "float"),
        Type("e4m3", 1, "float"),
        Type("e5m2", 1, "float"),
        *(Type(f"{sign}{8 * size}", size, "int") for sign in "iu" for size in (1, 2, 4, 8)),
        Type("bool", 1, "bool"),
        Type("c64", 8, "complex"),
        Type("c128", 16, "complex"),
    )
}
_ALIASES = {
    "half": "f16",
    "float": "f32",
    "double": "f64",
    "bfloat16": "bf16",
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
    "complex64": "c64",
    "complex128": "c128",
    "byte": "u8",
    **{f"float{n}": f"f{n}" for n in (16, 32, 64)},
    **{f"int{n}": f"i{n}" for n in (8, 16, 32, 64)},
    **{f"uint{n}": f"u{n}" for n in (8, 16, 32, 64)},
}


def parse(name: str) -> Type:
    """The type of that name: f32 and float32 alike. Raises Error for any other."""
    wanted = name.strip().lower()
    found = TYPES.get(_ALIASES.get(wanted, wanted))
    if found is None:
        raise Error(f"no type {name!r}: {', '.join(TYPES)} are known")
    return found


@functools.cache
def _small_floats(name: str) -> Array:
    """The value of each of the 256 floats of 8 bits, as float32."""
    bits = np.arange(256, dtype="<u2")
    if name == "e5m2":  # the upper half of a float16
        upper: Array = bits << np.uint16(8)
        return upper.view("<f2").astype("<f4")
    exponent, fraction = (bits >> 3) & 15, (bits & 7).astype("f4")
    normal = np.ldexp(1 + fraction / 8, exponent.astype("i4") - 7)
    out: Array = np.where(exponent > 0, normal, np.ldexp(fraction / 8, -6)).astype("<f4")
    out[(bits & 0x7F) == 0x7F] = np.nan
    out[128:] *= -1
    return out
