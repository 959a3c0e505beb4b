"""How fast the kernel of `record --compress device` codes data of several kinds, as JSON: GB/s into
device memory, and the size of the contents over that of their code. Weights, gradients, the
optimiser's state and activations are those of a small transformer in training (AdamW).
"""

from __future__ import annotations

import argparse
import ctypes
import json
import statistics
from collections.abc import Iterator

import torch

BLOCK = 1 << 16
ROOM = BLOCK + 32
THREADS = 256
DIM, LAYERS, WORDS = 512, 6, 8192


class Coder:
    """The kernel of a PTX file."""

    def __init__(self, path: str, runs: int) -> None:
        torch.zeros(1, device="cuda")  # makes the context current
        self._driver = ctypes.CDLL("libcuda.so.1")
        self._runs = runs
        module, self._kernel = ctypes.c_void_p(), ctypes.c_void_p()
        self._call("cuModuleLoad", ctypes.byref(module), path.encode())
        self._call("cuModuleGetFunction", ctypes.byref(self._kernel), module, b"tt_pack")

    def _call(self, name: str, *arguments: object) -> None:
        result = getattr(self._driver, name)(*arguments)
        if result:
            raise SystemExit(f"{name}: CUDA error {result}")

    def measure(self, values: torch.Tensor) -> dict[str, float]:
        data = values.contiguous().view(torch.uint8).flatten()
        count = data.numel() // BLOCK
        out = torch.zeros(count, ROOM, dtype=torch.uint8, device="cuda")
        index = torch.arange(count)
        blocks = torch.stack(  # struct tt_pack_block
            [
                data.data_ptr() + index * BLOCK,
                out.data_ptr() + index * ROOM,
                torch.full_like(index, BLOCK),
            ],
            dim=1,
        ).cuda()
        params = (ctypes.c_uint64 * 2)(blocks.data_ptr(), count)  # struct tt_pack_params
        arguments = (ctypes.c_void_p * 1)(ctypes.addressof(params))
        stream = ctypes.c_void_p(torch.cuda.current_stream().cuda_stream)
        times = []
        for turn in range(self._runs + 2):
            before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            before.record()
            grid = (count, 1, 1, THREADS, 1, 1, 0)
            self._call("cuLaunchKernel", self._kernel, *grid, stream, arguments, None)
            after.record()
            after.synchronize()
            if turn >= 2:
                times.append(before.elapsed_time(after))
        stored = int(out[:, :4].contiguous().view(torch.int32).sum()) + 4 * count
        size = count * BLOCK
        return {"GBps": size / statistics.median(times) / 1e6, "ratio": size / stored}


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
    coder, out = Coder(options.ptx, options.runs), {}
    for name, values in simple(options.mib << 20):
        out[name] = coder.measure(values)
    for dtype in (torch.bfloat16, torch.float32):
        for name, values in trained(dtype, options.steps):
            out[name] = coder.measure(values)
    print(json.dumps(out))


if __name__ == "__main__":
    main()
