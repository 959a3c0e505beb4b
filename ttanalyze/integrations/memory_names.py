"""Names of memory, as the recorder of this process is told them.

Memory keeps its first name while it is alive, unless a name of a higher rank follows. The name of
freed memory says so, until the memory is used again. It uses only what objects offer, and imports
no framework.
"""

from __future__ import annotations

import ctypes
import functools
import os
import sys
import weakref
from collections.abc import Callable, Iterable
from typing import Any

Label = Callable[[int, int, "bytes | None", "bytes | None"], int]  # address, bytes, name, type

TYPES = {
    "half": "f16",
    "bfloat16": "bf16",
    "float8_e4m3fn": "e4m3",
    "float8_e5m2": "e5m2",
    "complex64": "c64",
    "complex128": "c128",
    "bool": "bool",
    **{f"float{n}": f"f{n}" for n in (16, 32, 64)},
    **{f"int{n}": f"i{n}" for n in (8, 16, 32, 64)},
    **{f"uint{n}": f"u{n}" for n in (8, 16, 32, 64)},
}
FREED = b" (freed)"
USUAL = "_disabled_torch_dispatch_impl"  # how tensors compute, unless their type has its own way
# Ranks: of what is saved for the backward pass, of all else that passes by, of what has the memory.
SAVED, PASSING, OWN = range(3)
# What frameworks raise where they are asked for what something does not have, or not so far.
NOT_NOW = (RuntimeError, NotImplementedError, ValueError)


@functools.cache
def memory() -> Memory | None:
    """Returns the recorder of this process, None if there is none."""
    try:
        label = ctypes.CDLL(None).tt_label_range
    except AttributeError:
        return None
    label.argtypes = [ctypes.c_uint64, ctypes.c_uint64, ctypes.c_char_p, ctypes.c_char_p]
    label.restype = ctypes.c_int
    return Memory(label)


def state_only() -> bool:
    """Whether epochs read memory with names alone (`record --regions named`). Then what passes by,
    such as activations, gets none.
    """
    return os.environ.get("TT_REGIONS") == "named"


class _Block:
    """The memory of an object while it is alive.

    parts: by address and bytes, the name, the type, and the rank of the name.
    """

    __slots__ = ("capturing", "parts", "ref")

    def __init__(self, capturing: bool) -> None:
        self.ref: Any = None
        self.capturing = capturing  # into a graph, which uses it whenever it is launched
        self.parts: dict[tuple[int, int], tuple[bytes, bytes | None, int]] = {}


class Memory:
    """The names that the recorder was told.

    A module that returns its input does not rename it, because memory keeps its first name of a
    rank. Parameters, gradients and states of an optimizer own their memory: they always get theirs.
    """

    def __init__(self, label: Label) -> None:
        self._label = label
        self._blocks: dict[int, _Block] = {}
        # By address, the last name's size and rank, and the owner, weakly.
        self._named: dict[int, tuple[int, int, Any]] = {}
        self._types: dict[Any, bytes | None] = {}
        self._namers: dict[type, Callable[..., bool]] = {}

    def name(self, value: Any, name: bytes, rank: int = PASSING) -> bool:
        """Names the memory of an array, from its first to its last item. Returns False if nothing
        changed: it has no memory on a GPU, for example, or a name already.
        """
        namer = self._namers.get(type(value)) or self._namer(value)
        try:
            return namer(value, name, rank)
        except NOT_NOW:  # it has no memory of its own
            return False

    def _namer(self, value: Any) -> Callable[..., bool]:
        """Returns what names values of this type."""
        kind = type(value)
        namer: Callable[..., bool] = getattr(self, f"_name_{framework(value)}", lambda *_: False)
        if hasattr(kind, "_local_tensor"):
            namer = self._name_distributed
        elif getattr(getattr(kind, "__torch_dispatch__", None), "__name__", USUAL) != USUAL:
            namer = self._name_unusual
        self._namers[kind] = namer
        return namer

    def _name_distributed(self, tensor: Any, name: bytes, rank: int) -> bool:
        """Names the local part of a distributed tensor."""
        return self.name(tensor._local_tensor, name, rank)

    def _name_unusual(self, tensor: Any, name: bytes, rank: int) -> bool:
        """Names a tensor of a type that computes in its own way, unless it is a fake one: to ask
        that one where it is warns.
        """
        real = tensor.is_cuda and tensor.untyped_storage().device.type != "meta"
        return real and self._name_torch(tensor, name, rank)

    def _name_torch(self, tensor: Any, name: bytes, rank: int) -> bool:
        """Names a tensor of PyTorch. Most have names already: this is known at once."""
        if not tensor.is_cuda:
            return False
        place: int = tensor.data_ptr()
        storage = tensor.untyped_storage()
        size, last, ref = self._named.get(place, (0, 0, None))
        known = last >= rank and ref is not None and ref() is storage
        if known and tensor.nbytes <= size and tensor.is_contiguous():
            return False
        base: int = storage.data_ptr()
        if not base:
            return False
        size = tensor.nbytes
        if size and not tensor.is_contiguous():
            size = (_reach(tensor.shape, tensor.stride())[1] + 1) * tensor.element_size()
        return self._put(storage, base, place, size, (name, self._type(tensor.dtype), rank))

    def _name_jax(self, array: Any, name: bytes, rank: int) -> bool:
        """Names an array of JAX: `params.w`, or `params.w:1` and so on if it has parts."""
        if array.is_deleted():
            return False
        shards = array.addressable_shards
        done = False
        for shard in shards:
            if shard.device.platform not in ("gpu", "cuda"):
                continue
            part = name + f":{shard.device.id}".encode() if len(shards) > 1 else name
            address, size = shard.data.unsafe_buffer_pointer(), shard.data.nbytes
            what = (part, self._type(array.dtype), rank)
            done |= self._put(array, address, address, size, what)
        return done

    def _name_cuda(self, array: Any, name: bytes, rank: int) -> bool:
        """Names an array of CuPy or of others with `__cuda_array_interface__`."""
        about = array.__cuda_array_interface__
        address, shape, steps = about["data"][0], about["shape"], about.get("strides")
        width = int(about["typestr"][2:])
        if 0 in shape:
            return False
        first, last = _reach(shape, steps) if steps else (0, 0)
        size = last - first + width
        if not steps:
            for length in shape:
                size *= length
        what = (name, self._type(array.dtype), rank)
        block: Any = getattr(getattr(array, "data", None), "mem", None)  # in CuPy views share it
        if getattr(type(block), "__weakrefoffset__", 0):
            return self._put(block, block.ptr, address + first, size, what)
        return self._put(array, address, address + first, size, what)

    def _put(
        self,
        owner: Any,
        base: int,
        address: int,
        size: int,
        what: tuple[bytes, bytes | None, int],
    ) -> bool:
        """owner: lives as long as the memory. base: its first address."""
        if not size or not address:
            return False
        known = self._blocks.get(base)
        if known is None or known.ref() is not owner:
            known = self._new(base, owner)
        name, kind, rank = what
        there = known.parts.get((address, size))
        if there is not None and there[2] >= rank:
            return False
        if there is None and rank < OWN and _covered(known, address, size, rank):
            return False
        known.parts[address, size] = what
        self._named[address] = size, rank, known.ref
        self._label(address, size, name, kind)
        return True

    def _new(self, base: int, owner: Any) -> _Block:
        torch = sys.modules.get("torch")
        capturing = torch is not None and bool(torch.cuda.is_current_stream_capturing())
        made = _Block(capturing)
        try:
            made.ref = weakref.ref(owner, functools.partial(self._gone, base))
        except TypeError:  # an object that tells nobody of its end: its name stays until the next
            made.ref = lambda: None
        self._forget(self._blocks.get(base))
        self._blocks[base] = made
        return made

    def _forget(self, block: _Block | None) -> None:
        for address, _ in list(block.parts) if block else ():
            self._named.pop(address, None)

    def _gone(self, base: int, ref: Any) -> None:
        """Notes that memory was freed."""
        known = self._blocks.get(base)
        if known is None or known.ref is not ref:
            return
        del self._blocks[base]
        self._forget(known)
        if not known.capturing:
            for (address, size), (name, kind, _) in list(known.parts.items()):
                self._label(address, size, name + FREED, kind)

    def forget_deleted(self) -> None:
        """Notes that memory was freed whose array is still there, such as donated ones of JAX."""
        for base, known in list(self._blocks.items()):
            owner = known.ref()
            if framework(owner) == "jax" and owner.is_deleted():
                self._gone(base, known.ref)

    def _type(self, dtype: Any) -> bytes | None:
        if dtype not in self._types:
            found = TYPES.get(str(dtype).removeprefix("torch."))
            self._types[dtype] = None if found is None else found.encode()
        return self._types[dtype]


def framework(value: Any) -> str | None:
    """Returns whose array a value is: "torch", "jax", or "cuda" for others that say where they lie.

    It looks only at the type, because values that JAX traces complain where they are asked.
    """
    kind = type(value)
    if hasattr(kind, "untyped_storage"):
        return "torch"
    if hasattr(kind, "addressable_shards"):
        return None if kind.__name__.endswith("Tracer") else "jax"
    return "cuda" if hasattr(kind, "__cuda_array_interface__") else None


def _covered(block: _Block, address: int, size: int, rank: int) -> bool:
    """Whether there is a name of this rank or a higher one."""
    end = address + size
    parts = list(block.parts.items())
    return any(a <= address and end <= a + n and what[2] >= rank for (a, n), what in parts)


def _reach(shape: Iterable[int], steps: Iterable[int]) -> tuple[int, int]:
    """Returns the distances from the first item to the lowest and the highest one."""
    ends = [(length - 1) * step for length, step in zip(shape, steps, strict=True)]
    return sum(end for end in ends if end < 0), sum(end for end in ends if end > 0)
