"""A tensor that other processes change in turn: PyTorch shares its memory by a handle. Each process
has its GPU, as many as the argument says.
"""

# mypy: disable-error-code="import-not-found,import-untyped"
from __future__ import annotations

import sys

import torch
import torch.multiprocessing as mp


def add(device: int, given: mp.SimpleQueue, said: mp.SimpleQueue) -> None:
    """Adds one to what comes, copies it to the own device, and says the sum of the copy."""
    torch.cuda.set_device(device)
    while (tensor := given.get()) is not None:
        tensor += 1
        torch.cuda.synchronize(tensor.device)
        copy = tensor.to(f"cuda:{device}")
        torch.cuda.synchronize()
        said.put(float(copy.double().sum()))
        del tensor


def main() -> None:
    context = mp.get_context("spawn")
    pairs = [(context.SimpleQueue(), context.SimpleQueue()) for _ in range(1, int(sys.argv[1]))]
    others = [context.Process(target=add, args=(i, *pair)) for i, pair in enumerate(pairs, 1)]
    for other in others:
        other.start()
    mine = torch.arange(1 << 16, device="cuda", dtype=torch.float32)
    for step in range(3):
        mine *= 2
        torch.cuda.synchronize()
        for given, said in pairs:
            given.put(mine)
            print(f"step {step}: there {said.get()}, here {float(mine.double().sum())}", flush=True)
    for given, _ in pairs:
        given.put(None)
    for other in others:
        other.join()
    sys.exit(max(other.exitcode or 0 for other in others))


if __name__ == "__main__":
    main()
