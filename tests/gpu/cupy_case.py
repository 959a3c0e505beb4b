"""CuPy: array arithmetic, a kernel of its own, a matrix product, a sort, two streams."""

# mypy: disable-error-code="import-not-found,import-untyped"
from __future__ import annotations

import hashlib

import cupy as cp
import numpy as np

LOGISTIC = cp.RawKernel(
    r"""
    extern "C" __global__ void logistic(const float* in, float* out, int n, int rounds)
    {
        int i = blockIdx.x * blockDim.x + threadIdx.x;
        if (i >= n) return;
        float x = in[i];
        for (int k = 0; k < rounds; k++) x = 3.75f * x * (1.0f - x);
        out[i] = x;
    }
    """,
    "logistic",
)


def digest(array: cp.ndarray) -> str:
    return hashlib.sha256(cp.asnumpy(array).tobytes()).hexdigest()[:16]


def main() -> None:
    random = np.random.default_rng(1)
    host = random.random(100_003, dtype=np.float32)
    values = cp.asarray(host)
    print("sum of squares", digest(values * values + cp.float32(1)))
    out = cp.zeros_like(values)
    for rounds in (1, 5):
        LOGISTIC(
            ((values.size + 255) // 256,),
            (256,),
            (values, out, np.int32(values.size), np.int32(rounds)),
        )
        cp.cuda.get_current_stream().synchronize()
        print("logistic", rounds, digest(out))
    whole = cp.asarray(random.integers(-8, 8, (200, 300)).astype(np.float32))
    print("product", digest(whole @ whole.T))
    print("sorted", digest(cp.sort(values)))
    first, second = cp.cuda.Stream(non_blocking=True), cp.cuda.Stream(non_blocking=True)
    with first:
        a = cp.arange(50_000, dtype=cp.int64) * 3
        done = first.record()
    second.wait_event(done)
    with second:
        b = a + 1
    second.synchronize()
    print("streams", digest(b))
    print("total", int(cp.sum(b)))


if __name__ == "__main__":
    main()
