"""How fast the kernel of `record --compress device` codes data of several kinds, as JSON: GB/s into
device memory, and the size of the contents over that of their code; and the same of nvCOMP's coders
where it is installed (nvidia-libnvcomp-cu13). Weights, gradients, the
optimiser's state and activations are those of a small transformer in training (AdamW).
"""

from __future__ import annotations

import argparse
import contextlib
import ctypes
import importlib.util
import itertools
import json
import statistics
from collections.abc import Callable, Iterator
from typing import ClassVar

import torch

BLOCK = 1 << 16
ROOM = BLOCK + 32
THREADS = 256
PEERS = ("ANS", "Bitcomp")  # of nvCOMP
DIM, LAYERS, WORDS = 512, 6, 8192


class Coder:
    """Codes contents block by block, several times."""

    def __init__(self, runs: int) -> None:
        self._runs = runs

    def measure(self, values: torch.Tensor) -> dict[str, float]:
        data = values.contiguous().view(torch.uint8).flatten()
        count = data.numel() // BLOCK
        begin = data.data_ptr() + BLOCK * torch.arange(count)
        code, stored = self._prepare(begin, values.dtype)
        times = []
        for turn in range(self._runs + 2):
            before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            before.record()
            code()
            after.record()
            after.synchronize()
            if turn >= 2:
                times.append(before.elapsed_time(after))
        size = count * BLOCK
        return {"GBps": size / statistics.median(times) / 1e6, "ratio": size / stored()}

    def _prepare(
        self, begin: torch.Tensor, dtype: torch.dtype
    ) -> tuple[Callable[[], None], Callable[[], int]]:
        """Functions that code the blocks at these addresses, and tell the size of all codes."""
        raise NotImplementedError


class Ours(Coder):
    """The kernel of a PTX file."""

    def __init__(self, path: str, runs: int) -> None:
        super().__init__(runs)
        torch.zeros(1, device="cuda")  # makes the context current
        self._driver = ctypes.CDLL("libcuda.so.1")
        module, self._kernel = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuModuleLoad", ctypes.byref(module), path.encode())
        self._call("cuModuleGetFunction", ctypes.byref(self._kernel), module, b"tt_pack")

    def _call(self, name: str, *arguments: object) -> None:
        result = getattr(self._driver, name)(*arguments)
        if result:
            raise SystemExit(f"{name}: CUDA error {result}")

    def _prepare(
        self, begin: torch.Tensor, dtype: torch.dtype
    ) -> tuple[Callable[[], None], Callable[[], int]]:
        count = len(begin)
        out = torch.zeros(count, ROOM, dtype=torch.uint8, device="cuda")
        to = out.data_ptr() + ROOM * torch.arange(count)
        length = torch.full_like(begin, BLOCK)
        blocks = torch.stack([begin, to, length], dim=1).cuda()  # struct tt_pack_block
        params = (ctypes.c_uint64 * 2)(blocks.data_ptr(), count)  # struct tt_pack_params
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        grid = (count, 1, 1, THREADS, 1, 1, 0)

        def code() -> None:
            arguments = (ctypes.c_void_p * 1)(ctypes.addressof(params))
            self._call("cuLaunchKernel", self._kernel, *grid, stream, arguments, None)

        def stored() -> int:
            return int(out[:, :4].contiguous().view(torch.int32).sum()) + 4 * len(blocks)

        return code, stored


class NvComp(Coder):
    """A coder of nvCOMP 6 with its default options, told the type of the values."""

    TYPES: ClassVar = {torch.bfloat16: 10, torch.float32: 11}  # nvcompType_t; 1: bytes

    def __init__(self, library: ctypes.CDLL, name: str, runs: int) -> None:
        super().__init__(runs)
        self._library, self._name = library, name

    def _call(self, what: str, *arguments: object) -> None:
        name = f"nvcompBatched{self._name}Compress{what}"
        result = getattr(self._library, name)(*arguments)
        if result:
            raise SystemExit(f"{name}: nvcompStatus_t {result}")

    def _prepare(
        self, begin: torch.Tensor, dtype: torch.dtype
    ) -> tuple[Callable[[], None], Callable[[], int]]:
        count, size = len(begin), ctypes.c_size_t
        options = Options((ctypes.c_int32 * 16)(0, self.TYPES.get(dtype, 1)))
        temporary, room = size(), size()
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        self._call(
            "GetTempSize",
            *(size(count), size(BLOCK), options, ctypes.byref(temporary), size(count * BLOCK)),
            stream,
        )
        self._call("GetMaxOutputChunkSize", size(BLOCK), options, ctypes.byref(room))
        each = -(-room.value // 256) * 256
        memory = torch.empty(max(temporary.value, 1), dtype=torch.uint8, device="cuda")
        out = torch.empty(count * each, dtype=torch.uint8, device="cuda")
        lengths = torch.full_like(begin, BLOCK).cuda()
        begins, places = begin.cuda(), (out.data_ptr() + each * torch.arange(count)).cuda()
        coded = torch.zeros(count, dtype=torch.int64, device="cuda")
        statuses = torch.zeros(count, dtype=torch.int32, device="cuda")

        def at(tensor: torch.Tensor) -> ctypes.c_void_p:
            return ctypes.c_void_p(tensor.data_ptr())

        def code() -> None:
            self._call(
                "Async",
                *(at(begins), at(lengths), size(BLOCK), size(count), at(memory), temporary),
                *(at(places), at(coded), options, at(statuses), stream),
            )

        def stored() -> int:
            assert len(out) == count * each  # where the codes are, until here
            if int(statuses.abs().sum()):
                raise SystemExit(f"nvCOMP {self._name}: a block was not coded")
            return int(coded.sum())

        return code, stored


class Options(ctypes.Structure):
    """nvcompBatched…CompressOpts_t: an algorithm, the type of values, and zeros."""

    _fields_: ClassVar = [("words", ctypes.c_int32 * 16)]


def installed() -> ctypes.CDLL | None:
    """nvCOMP's library, of its wheel or of the system."""
    folders = []
    with contextlib.suppress(ImportError):
        found = importlib.util.find_spec("nvidia.libnvcomp")
        folders = [
            f"{folder}/lib64/" for folder in (found and found.submodule_search_locations) or ()
        ]
    for folder in [*folders, ""]:
        with contextlib.suppress(OSError):
            return ctypes.CDLL(f"{folder}libnvcomp.so.6")
    return None


def simple(size: int) -> Iterator[tuple[str, torch.Tensor]]:
    yield "zeros", torch.zeros(size // 4, device="cuda")
    yield "all equal", torch.full((size // 4,), 1.7, device="cuda")
    yield "noise", torch.randint(0, 256, (size,), device="cuda", dtype=torch.uint8)
    yield "ReLU bf16", torch.randn(size // 2, device="cuda").bfloat16().relu()
    yield "indices i64", torch.randint(0, 50_000, (size // 8,), device="cuda")


def trained(dtype: torch.dtype, steps: int) -> Iterator[tuple[str, torch.Tensor]]:
    torch.manual_seed(2)
    layer = torch.nn.TransformerEncoderLayer(DIM, 8, 4 * DIM, 0.0, batch_first=True)
    stack = torch.nn.TransformerEncoder(layer, LAYERS, enable_nested_tensor=False)
    words, head = torch.nn.Embedding(WORDS, DIM), torch.nn.Linear(DIM, WORDS)
    model = torch.nn.ModuleList([words, stack, head]).to("cuda", dtype)
    outputs: dict[int, torch.Tensor] = {}
    for number, part in enumerate(stack.layers):
        part.linear1.register_forward_hook(
            lambda _, __, out, number=number: outputs.__setitem__(number, out.detach())
        )
    optimiser = torch.optim.AdamW(model.parameters(), lr=3e-4, fused=True)
    weights = 1 / torch.arange(1, WORDS + 1, device="cuda")
    for _ in range(steps):
        ids = torch.multinomial(weights, 8 * 257, replacement=True).view(8, 257)
        logits = head(stack(words(ids[:, :-1])))
        loss = torch.nn.functional.cross_entropy(logits.float().flatten(0, 1), ids[:, 1:].flatten())
        optimiser.zero_grad()
        loss.backward()
        optimiser.step()
    parameters = list(model.parameters())
    state = [optimiser.state[p] for p in parameters]
    kinds = {
        "weights": [p.detach() for p in parameters],
        "gradients": [p.grad for p in parameters],
        "AdamW m": [s["exp_avg"] for s in state],
        "AdamW v": [s["exp_avg_sq"] for s in state],
        "activations": list(outputs.values()),
        "logits": [logits.detach()],
    }
    for name, tensors in kinds.items():
        text = str(dtype).removeprefix("torch.")
        yield f"{name} {text}", torch.cat([tensor.flatten() for tensor in tensors])


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("ptx")
    parser.add_argument("--mib", type=int, default=256, help="of each simple kind")
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--runs", type=int, default=7)
    options = parser.parse_args()
    coders: dict[str, Coder] = {"ours": Ours(options.ptx, options.runs)}
    library = installed()
    if library:
        coders |= {f"nvCOMP {name}": NvComp(library, name, options.runs) for name in PEERS}
    out: dict[str, dict[str, dict[str, float]]] = {name: {} for name in coders}
    kinds = [simple(options.mib << 20)]
    kinds += [trained(dtype, options.steps) for dtype in (torch.bfloat16, torch.float32)]
    for kind, values in itertools.chain(*kinds):
        for name, coder in coders.items():
            out[name][kind] = coder.measure(values)
    print(json.dumps(out))


if __name__ == "__main__":
    main()
