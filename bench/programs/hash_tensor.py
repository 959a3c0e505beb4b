"""How fast torch.hash_tensor reads --gib GiB, as {"int64": TB/s, …} by kinds of elements."""

from __future__ import annotations

import argparse
import json
import statistics

import torch


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--gib", type=float, default=8)
    parser.add_argument("--runs", type=int, default=21)
    options = parser.parse_args()
    if not hasattr(torch, "hash_tensor"):
        raise SystemExit(f"torch {torch.__version__} has no hash_tensor")
    size = int(options.gib * (1 << 30))
    memory = torch.randint(-(1 << 62), 1 << 62, (size // 8,), dtype=torch.int64, device="cuda")
    out = {}
    for dtype in (torch.int64, torch.int32, torch.float32):
        values = memory.view(dtype)
        times = []
        for i in range(options.runs + 2):
            before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
            before.record()
            torch.hash_tensor(values)
            after.record()
            after.synchronize()
            if i >= 2:
                times.append(before.elapsed_time(after))
        out[str(dtype).removeprefix("torch.")] = size / statistics.median(times) / 1e9
    print(json.dumps(out))


if __name__ == "__main__":
    main()
