"""A tensor that another process changes: PyTorch shares its memory by a handle."""

# mypy: disable-error-code="import-not-found,import-untyped"
from __future__ import annotations

import sys

import torch
import torch.multiprocessing as mp


def add(given: mp.SimpleQueue, said: mp.SimpleQueue) -> None:
    """Adds one to what comes, and says the sum."""
    while (tensor := given.get()) is not None:
        tensor += 1
        torch.cuda.synchronize()
        said.put(float(tensor.double().sum()))
        del tensor


def main() -> None:
    context = mp.get_context("spawn")
    given, said = context.SimpleQueue(), context.SimpleQueue()
    other = context.Process(target=add, args=(given, said))
    other.start()
    mine = torch.arange(1 << 16, device="cuda", dtype=torch.float32)
    for step in range(3):
        mine *= 2
        torch.cuda.synchronize()
        given.put(mine)
        print(f"step {step}: there {said.get()}, here {float(mine.double().sum())}", flush=True)
    given.put(None)
    other.join()
    sys.exit(other.exitcode)


if __name__ == "__main__":
    main()
