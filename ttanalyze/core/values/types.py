"""The types of items in memory: decoding, order, text."""

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
    """A type of items. `parse` finds one by its name; TYPES has all.

    Attributes:
        name: The name, such as "f32".
        itemsize: The size of an item in bytes.
        kind: "float", "int", "bool" or "complex".

    Example:
        >>> import numpy as np
        >>> bf16 = tt.values.parse("bf16")
        >>> bf16.nearest(0.1), bf16.view(np.array([0x80, 0x3F], "u1"))
        (0.10009765625, array([1.], dtype=float32))
    """

    name: str
    itemsize: int
    kind: str

    def view(self, raw: Array) -> Array:
        """Decodes a buffer.

        Args:
            raw: The buffer, 1-D uint8.

        Returns:
            A 1-D array of numpy's dtype, or of float32 for bf16, e4m3 and e5m2.

        Raises:
            Error: The length is not a multiple of the item size.
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
        """Decodes a buffer into real numbers.

        Args:
            raw: The buffer, 1-D uint8.

        Returns:
            An array with one row per item: two columns for complex types, else one.

        Raises:
            Error: The length is not a multiple of the item size.
        """
        values = self.view(raw)
        if self.kind == "complex":
            return values.view(values.real.dtype).reshape(-1, 2)
        return values.reshape(-1, 1)

    def to_float(self, raw: Array) -> Array:
        """Decodes a buffer into float64. Complex items give their absolute value, infinite if it
        overflows.

        Args:
            raw: The buffer, 1-D uint8.

        Returns:
            A 1-D array of float64.

        Raises:
            Error: The length is not a multiple of the item size.
        """
        values = self.view(raw)
        with np.errstate(invalid="ignore", over="ignore"):  # signalling NaNs become quiet ones
            if self.kind == "complex":
                values = np.hypot(values.real.astype("f8"), values.imag.astype("f8"))
            return values.astype("f8")

    def ordinals(self, raw: Array) -> Array:
        """Maps items to int64 in the order of their values, with neighbours one apart.

        Both zeros are 0. Values of u64 are shifted by 2**63. The numbers of NaNs have no meaning.

        Args:
            raw: The buffer, 1-D uint8.

        Returns:
            A 1-D array of int64; for complex types one row of two per item.

        Raises:
            Error: The length is not a multiple of the item size.
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
        """Returns which items are NaN. A complex item is NaN if one of its parts is.

        Args:
            raw: The buffer, 1-D uint8.
        """
        return self._where(raw, lambda bits: bits & self._magnitude > self._last_number)

    def is_inf(self, raw: Array) -> Array:
        """Returns which items are infinite. A complex item is if one part is and none is NaN.

        Args:
            raw: The buffer, 1-D uint8.
        """
        infinity = _INFINITY.get(self._part)
        if infinity is None:
            return np.zeros(len(raw) // self.itemsize, bool)
        out = self._where(raw, lambda bits: bits & self._magnitude == infinity)
        if self.kind == "complex":
            out &= ~self.is_nan(raw)
        return out

    def nearest(self, value: float) -> float:
        """Rounds a number to the nearest item of a float type, ties to even.

        A number that is too large becomes infinity, even if the type has none.

        Args:
            value: The number.
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
        """Returns the smallest and the largest item of an integer type or bool."""
        if self.kind == "bool":
            return 0, 1
        known = np.iinfo(_NUMPY[self.name])
        return int(known.min), int(known.max)

    def text(self, value: Any) -> str:
        """Returns an item in the fewest digits that identify it.

        Args:
            value: An item of `view`.
        """
        return f"{float(value):.4g}" if self.name == "bf16" else str(value)

    def texts(self, data: bytes) -> list[str]:
        """Returns each item of a buffer as text.

        Args:
            data: The buffer.

        Raises:
            Error: The length is not a multiple of the item size.
        """
        return [self.text(value) for value in self.view(np.frombuffer(data, "u1"))]

    def listed(self, data: bytes) -> list[Any]:
        """Returns each item of a buffer for JSON: "nan", "inf" and "-inf" as strings, complex items
        as pairs.

        Args:
            data: The buffer.

        Raises:
            Error: The length is not a multiple of the item size.
        """
        values = self.view(np.frombuffer(data, "u1"))
        if self.kind == "complex":
            parts = [_listed(part) for part in (values.real, values.imag)]
            return [list(pair) for pair in zip(*parts, strict=True)]
        return _listed(values)

    @property
    def numpy(self) -> str:
        """The numpy dtype of the items. Types that numpy lacks have that of their bits."""
        if self.name == "bool":
            return "|b1"
        return _NUMPY.get(self.name, "<u2" if self.itemsize == 2 else "|u1")

    # ---- as bits ----

    @property
    def _part(self) -> str:
        return {"c64": "f32", "c128": "f64"}.get(self.name, self.name)

    @property
    def _bits_type(self) -> np.dtype[Any]:
        """The dtype of unsigned integers as wide as an item, or as a part of a complex item."""
        return np.dtype(f"<u{self.itemsize // (2 if self.kind == 'complex' else 1)}")

    def _bits(self, raw: Array) -> Array:
        return np.ascontiguousarray(raw).view(self._bits_type)

    @property
    def _magnitude(self) -> Any:
        """The mask of all bits except the sign."""
        return self._bits_type.type((1 << (8 * self._bits_type.itemsize - 1)) - 1)

    @property
    def _last_number(self) -> Any:
        """The largest bits without sign that are no NaN."""
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
    """Returns a type by its name or an alias: "f32", "float32" and "float" are the same type.

    Args:
        name: The name, in any case.

    Raises:
        Error: The name is unknown.

    Source:
        e4m3 and e5m2: OCP 8-bit Floating Point Specification.

    Example:
        >>> tt.values.parse("bf16").itemsize
        2
    """
    wanted = name.strip().lower() if isinstance(name, str) else ""
    found = TYPES.get(_ALIASES.get(wanted, wanted))
    if found is None:
        raise Error(f"no type {name!r}: {', '.join(TYPES)} are known")
    return found


@functools.cache
def _small_floats(name: str) -> Array:
    """Returns the float32 value of each of the 256 items of an 8-bit float type."""
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


SAFETENSORS = {  # names of types in files of safetensors
    "e4m3": "F8_E4M3",
    "e5m2": "F8_E5M2",
    "c64": "C64",
    **{name: name.upper() for name in ("f16", "bf16", "f32", "f64", "bool")},
    **{f"{sign}{bits}": f"{sign}{bits}".upper() for sign in "iu" for bits in (8, 16, 32, 64)},
}
