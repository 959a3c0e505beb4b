"""Two devices in one process: NCCL adds up what each has, and an epoch follows each step."""

# mypy: disable-error-code="import-not-found,import-untyped"
from __future__ import annotations

import ctypes

import torch

epoch = getattr(ctypes.CDLL(None), "tt_epoch", None)


def main() -> None:
    own = [torch.full((1 << 20,), i + 1.0, device=f"cuda:{i}") for i in range(2)]
    for step in range(5):
        torch.cuda.nccl.all_reduce(own)
        own = [t * 0.75 for t in own]
        own[0] += own[1].to("cuda:0")  # from device to device
        own[1].copy_(own[0])
        if epoch:
            epoch(None, f"step {step}".encode())
        print(f"step {step}:", *(float(t[7]) for t in own))


if __name__ == "__main__":
    main()
