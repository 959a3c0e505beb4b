"""So many devices in one process: NCCL adds up what each has, each copies the next one's, and an
epoch follows each step.
"""

# mypy: disable-error-code="import-not-found,import-untyped"
from __future__ import annotations

import ctypes
import sys

import torch

epoch = getattr(ctypes.CDLL(None), "tt_epoch", None)


def main() -> None:
    count = int(sys.argv[1])
    own = [torch.full((1 << 20,), i + 1.0, device=f"cuda:{i}") for i in range(count)]
    for step in range(5):
        torch.cuda.nccl.all_reduce(own)
        own = [t * 0.25 for t in own]
        for i in range(count):  # from device to device
            own[i] += own[(i + 1) % count].to(f"cuda:{i}")
        own[1].copy_(own[0])
        if epoch:
            epoch(None, f"step {step}".encode())
        print(f"step {step}:", *(float(t[7]) for t in own))


if __name__ == "__main__":
    main()
