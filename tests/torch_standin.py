"""What ttanalyze.torch uses of PyTorch, in plain Python: tensors in memory of the driver, modules,
an optimiser, and hooks that are called when PyTorch calls them.

As a program it trains: `python -m tests.torch_standin [NAME]` spoils the gradient of that
parameter in the third step. With `--unwatched` it does not call `watch`, and has a module `torch`.
"""

from __future__ import annotations

import ctypes
import sys
import types
from collections.abc import Callable, Iterator
from typing import Any

SEGMENT = 1 << 20
GLOBAL_BEFORE: list[Any] = []  # hooks of all modules
GLOBAL_STEPPED: list[Any] = []  # and optimizers


class Handle:
    """What PyTorch gives for a hook."""

    def __init__(self, hooks: list[Any], hook: Any) -> None:
        self.hooks, self.hook = hooks, hook
        hooks.append(hook)

    def remove(self) -> None:
        if self.hook in self.hooks:
            self.hooks.remove(self.hook)


class Memory:
    """An allocator of pieces of 512 bytes, from segments that it has of `allocate`; what was freed
    last is given out first.
    """

    def __init__(self, allocate: Callable[[int], int]) -> None:
        self.allocate = allocate
        self.free: dict[int, list[int]] = {}
        self.next = self.end = 0

    def take(self, size: int) -> int:
        size = -(-size // 512) * 512
        if self.free.get(size):
            return self.free[size].pop()
        if self.next + size > self.end:
            self.next = self.allocate(SEGMENT)
            self.end = self.next + SEGMENT
        self.next += size
        return self.next - size

    def give(self, place: int, size: int) -> None:
        self.free.setdefault(-(-size // 512) * 512, []).append(place)


class Storage:
    def __init__(self, memory: Memory, size: int) -> None:
        self.memory, self.size, self.place = memory, size, memory.take(size)
        self.device = types.SimpleNamespace(type="cuda")

    def data_ptr(self) -> int:
        assert self.device.type == "cuda", "of a fake tensor this warns"
        return self.place

    def __del__(self) -> None:
        self.memory.give(self.place, self.size)


class Tensor:
    """Of float32, or as dtype says. storage: of another tensor, to be a view of it."""

    is_cuda = True
    requires_grad = False
    is_leaf = True

    def __init__(
        self,
        memory: Memory,
        *shape: int,
        storage: Storage | None = None,
        offset: int = 0,
        stride: tuple[int, ...] | None = None,
        dtype: str = "torch.float32",
    ) -> None:
        self.memory, self.shape, self.dtype, self.offset = memory, shape, dtype, offset
        dense = [1]
        for length in shape[:0:-1]:
            dense.insert(0, dense[0] * length)
        self.steps = stride or tuple(dense)
        self.dense = self.steps == tuple(dense)
        self.storage = storage or Storage(memory, self.nbytes)
        self.grad: Tensor | None = None
        self.hooks: list[Any] = []
        self.accumulated: list[Any] = []

    def numel(self) -> int:
        count = 1
        for length in self.shape:
            count *= length
        return count

    def element_size(self) -> int:
        return 2 if self.dtype == "torch.bfloat16" else 4

    @property
    def nbytes(self) -> int:
        return self.numel() * self.element_size()

    def is_contiguous(self) -> bool:
        return self.dense

    def stride(self) -> tuple[int, ...]:
        return self.steps

    def untyped_storage(self) -> Storage:
        return self.storage

    def data_ptr(self) -> int:
        return self.storage.place + self.offset * self.element_size()

    def register_hook(self, hook: Any) -> Handle:
        return Handle(self.hooks, hook)

    def register_post_accumulate_grad_hook(self, hook: Any) -> Handle:
        return Handle(self.accumulated, hook)

    def accumulate(self, gradient: Tensor) -> None:
        """As backward does with a parameter."""
        self.grad = gradient
        for hook in list(self.accumulated):
            assert hook(self) is None


class Module:
    """children, parameters, buffers: by name; work: what it computes of what it is given."""

    def __init__(self, work: Callable[..., Any] = lambda *given: given[0], **members: Any) -> None:
        self.work, self.members = work, members
        self.before: list[Any] = []
        self.after: list[Any] = []

    def modules(self) -> Iterator[Module]:
        return (module for _, module in self.named_modules())

    def parameters(self) -> Iterator[Tensor]:
        return (tensor for _, tensor in self.named_parameters())

    def register_forward_pre_hook(self, hook: Any) -> Handle:
        return Handle(self.before, hook)

    def register_forward_hook(self, hook: Any) -> Handle:
        return Handle(self.after, hook)

    def __call__(self, *given: Any) -> Any:
        for hook in (*GLOBAL_BEFORE, *self.before):
            assert hook(self, given) is None
        out = self.work(*given)
        for hook in list(self.after):
            assert hook(self, given, out) is None
        return out

    def named_modules(self, path: str = "") -> Iterator[tuple[str, Module]]:
        yield path, self
        for name, member in self.members.items():
            if isinstance(member, Module):
                yield from member.named_modules(f"{path}.{name}" if path else name)

    def _tensors(self, wanted: bool) -> Iterator[tuple[str, Tensor]]:
        seen = set()
        for path, module in self.named_modules():
            for name, member in module.members.items():
                if isinstance(member, Tensor) and member.requires_grad == wanted:
                    if id(member) not in seen:
                        yield f"{path}.{name}" if path else name, member
                    seen.add(id(member))

    def named_parameters(self) -> Iterator[tuple[str, Tensor]]:
        return self._tensors(True)

    def named_buffers(self) -> Iterator[tuple[str, Tensor]]:
        return self._tensors(False)


class Optimizer:
    def __init__(self, parameters: list[Tensor]) -> None:
        self.parameters = parameters
        self.state: dict[Tensor, dict[str, Any]] = {}
        self.after: list[Any] = []

    def register_step_post_hook(self, hook: Any) -> Handle:
        return Handle(self.after, hook)

    def step(self) -> None:
        for p in self.parameters:
            if p not in self.state:
                self.state[p] = {"step": 0, "momentum": Tensor(p.memory, *p.shape)}
            self.state[p]["step"] += 1
        for hook in (*self.after, *GLOBAL_STEPPED):
            assert hook(self, (), {}) is None


def as_torch() -> dict[str, types.ModuleType]:
    """Makes modules of PyTorch, with hooks of all modules and optimizers."""
    made, optimizers = types.ModuleType("torch"), types.ModuleType("torch.optim.optimizer")
    here = types.SimpleNamespace
    before, stepped = (
        lambda hook, to=to: Handle(to, hook) for to in (GLOBAL_BEFORE, GLOBAL_STEPPED)
    )
    made.__dict__.update(
        nn=here(modules=here(module=here(register_module_forward_pre_hook=before))),
        cuda=here(is_current_stream_capturing=bool),
    )
    optimizers.__dict__["register_optimizer_step_post_hook"] = stepped
    return {module.__name__: module for module in (made, optimizers)}


def parameter(memory: Memory, *shape: int) -> Tensor:
    made = Tensor(memory, *shape)
    made.requires_grad = True
    return made


def model(memory: Memory) -> Module:
    """Two layers with a weight each, and what lies between them."""

    def layer() -> Module:
        own = parameter(memory, 64, 64)

        def work(x: Tensor) -> Tensor:
            out = Tensor(memory, *x.shape)
            out.requires_grad, out.is_leaf = True, False
            return out

        return Module(work, weight=own)

    first, second = layer(), layer()
    layers = Module(lambda x: second(first(x)), **{"0": first, "1": second})
    return Module(lambda x: {"logits": layers(x), "x": (x,)}, layers=layers)


def driver_memory(cuda: Any) -> tuple[Memory, Callable[[int], None]]:
    """Makes a context, and returns memory in it and a function that checks results."""

    def check(result: int) -> None:
        assert result == 0, f"CUDA error {result}"

    def allocate(size: int) -> int:
        place = ctypes.c_uint64()
        check(cuda.cuMemAlloc_v2(ctypes.byref(place), ctypes.c_size_t(size)))
        zeros = ctypes.c_ubyte(0)
        check(cuda.cuMemsetD8_v2(place, zeros, ctypes.c_size_t(size)))
        return place.value

    context = ctypes.c_void_p()
    check(cuda.cuInit(0))
    check(cuda.cuDevicePrimaryCtxRetain(ctypes.byref(context), 0))
    check(cuda.cuCtxSetCurrent(context))
    return Memory(allocate), check


def main(spoiled: str | None, watched: bool) -> None:
    import ttanalyze.integrations.torch

    cuda = ctypes.CDLL("libcuda.so.1")
    if not watched:
        sys.modules |= as_torch()

    def fill(tensor: Tensor, value: float) -> None:
        items = (ctypes.c_float * tensor.numel())(*[value] * tensor.numel())
        place, size = ctypes.c_uint64(tensor.data_ptr()), ctypes.c_size_t(4 * tensor.numel())
        check(cuda.cuMemcpyHtoD_v2(place, items, size))

    memory, check = driver_memory(cuda)
    net = model(memory)
    parameters = dict(net.named_parameters())
    optimizer = Optimizer(list(parameters.values()))
    if watched:
        ttanalyze.integrations.torch.watch(net, optimizer)
    for step in range(5):
        for p in parameters.values():
            p.grad = None
        given = Tensor(memory, 64)
        out = net(given)["logits"]
        fill(out, step + 1)
        for name, p in parameters.items():
            gradient = Tensor(memory, 64, 64)
            fill(gradient, step + 0.5)
            if name == spoiled and step == 2:
                place = ctypes.c_uint64(gradient.data_ptr() + 4 * 17)
                check(cuda.cuMemcpyHtoD_v2(place, b"\x00\x00\x80\x40", ctypes.c_size_t(4)))
            p.accumulate(gradient)
        optimizer.step()
        del out, given
        check(cuda.cuCtxSynchronize())


if __name__ == "__main__":
    spoiled = [word for word in sys.argv[1:] if word != "--unwatched"]
    main(spoiled[0] if spoiled else None, "--unwatched" not in sys.argv)
