"""A program with arrays as JAX and CuPy have them, in plain Python, in memory of the driver.

It names nothing itself. Each step replaces its parameters, as programs for JAX do.
"""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

from tests.torch_standin import Memory, driver_memory

cuda = ctypes.CDLL("libcuda.so.1")


class JaxArray:
    """On one device, or on two. donate: as JAX does with an argument whose memory it reuses."""

    dtype = "float32"

    def __init__(self, memory: Memory, count: int, devices: int = 1) -> None:
        self.memory, self.nbytes, self.devices = memory, 4 * count, devices
        self.places: list[int] | None = [memory.take(self.nbytes) for _ in range(devices)]

    def is_deleted(self) -> bool:
        return self.places is None

    @property
    def addressable_shards(self) -> list[Any]:
        assert self.places is not None
        return [
            SimpleNamespace(
                device=SimpleNamespace(platform="gpu", id=i),
                data=SimpleNamespace(nbytes=self.nbytes, unsafe_buffer_pointer=lambda p=place: p),
            )
            for i, place in enumerate(self.places)
        ]

    def donate(self) -> None:
        for place in self.places or ():
            self.memory.give(place, self.nbytes)
        self.places = None

    def __del__(self) -> None:
        self.donate()


class Tracer:
    """What a function sees while JAX traces it: it complains of everything."""

    def __getattr__(self, name: str) -> Any:
        raise TypeError(f"the '{name}' attribute is not available on a traced array")

    addressable_shards = property(lambda self: self.nothing)


class CupyArray:
    """Or a view of one, of each second item."""

    dtype = "int32"

    def __init__(self, memory: Memory, count: int, of: CupyArray | None = None) -> None:
        self.block: Block = of.block if of else Block(memory, 4 * count)
        self.data = SimpleNamespace(mem=self.block)
        self.about = {
            "data": (self.block.ptr, False),
            "shape": (count // 2,) if of else (count,),
            "strides": (8,) if of else None,
            "typestr": "<i4",
        }

    @property
    def __cuda_array_interface__(self) -> dict[str, Any]:
        return self.about


class Block:
    def __init__(self, memory: Memory, size: int) -> None:
        self.memory, self.size, self.ptr = memory, size, memory.take(size)

    def __del__(self) -> None:
        self.memory.give(self.ptr, self.size)


class State:
    """An object of the program."""

    def __init__(self, memory: Memory) -> None:
        self.mu = JaxArray(memory, 32)
        self.itself = self


def synchronize(check: Any) -> None:
    check(cuda.cuCtxSynchronize())


def train(memory: Memory, check: Any) -> None:
    local = {"bias": JaxArray(memory, 128)}
    for _ in range(4):
        check(cuda.cuMemsetD8_v2(ctypes.c_uint64(params["dense"]["kernel"].places[0]), 1, 256))
        params["dense"]["kernel"] = JaxArray(memory, 64)
        local["bias"].donate()
        local = {"bias": JaxArray(memory, 128)}
        synchronize(check)


memory, check = driver_memory(cuda)
params: Any = {"dense": {"kernel": JaxArray(memory, 64)}, "split": JaxArray(memory, 8, devices=2)}
counts = CupyArray(memory, 16)
odd = CupyArray(memory, 16, of=counts)
state, tracer, _hidden, number = State(memory), Tracer(), JaxArray(memory, 4), 3

if __name__ == "__main__":
    train(memory, check)
    synchronize(check)
