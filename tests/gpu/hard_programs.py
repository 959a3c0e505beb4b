"""Programs that are hard to record, each a function here: `python hard_programs.py NAME`.

Each prints lines that are the same in every run, and ends as ENDS says: by returning, with a
status, or by a signal.
"""

# mypy: ignore-errors
from __future__ import annotations

import ctypes
import hashlib
import os
import resource
import signal
import subprocess
import sys
import threading
import time

os.environ.setdefault("CUBLAS_WORKSPACE_CONFIG", ":4096:8")


def digest(tensor) -> str:
    return hashlib.sha256(tensor.detach().cpu().contiguous().numpy().tobytes()).hexdigest()[:16]


def network(torch, width=64):
    torch.manual_seed(1)
    layers = [torch.nn.Linear(width, 128), torch.nn.ReLU(), torch.nn.Linear(128, width)]
    return torch.nn.Sequential(*layers).cuda()


def graph_streams() -> None:
    """A graph with two side streams, captured and replayed on a third, beside eager work."""
    import torch

    one, two, three = (torch.cuda.Stream() for _ in range(3))
    a = torch.arange(1 << 18, device="cuda", dtype=torch.float32) / (1 << 18)
    model = network(torch)
    x = a[: 64 * 64].reshape(64, 64).clone()

    def work():
        here = torch.cuda.current_stream()
        one.wait_stream(here)
        two.wait_stream(here)
        with torch.cuda.stream(one):
            b = a * 2 + 1
        with torch.cuda.stream(two):
            c = model(x)
        here.wait_stream(one)
        here.wait_stream(two)
        x.add_(c, alpha=0.01)
        a.copy_(b.remainder(7))
        return c

    with torch.no_grad():
        three.wait_stream(torch.cuda.current_stream())
        with torch.cuda.stream(three):
            work()
        torch.cuda.current_stream().wait_stream(three)
        torch.cuda.synchronize()
        pool = torch.cuda.graph_pool_handle()
        graphs = []
        for _ in range(2):
            graph = torch.cuda.CUDAGraph()
            with torch.cuda.graph(graph, pool=pool):
                out = work()
            graphs.append((graph, out))
        eager = torch.zeros(1 << 16, device="cuda")
        for step in range(20):
            with torch.cuda.stream(three if step % 3 else torch.cuda.default_stream()):
                torch.cuda.current_stream().wait_stream(torch.cuda.default_stream())
                graphs[step % 2][0].replay()
                torch.cuda.default_stream().wait_stream(torch.cuda.current_stream())
            eager.add_(a[: 1 << 16])
            if step % 5 == 4:
                print(step, digest(a), digest(x), digest(eager))
    del graphs
    torch.cuda.empty_cache()
    print(digest(eager + 1))


def compiled() -> None:
    """torch.compile with its processes for compilation, and graphs of CUDA."""
    import torch

    model = network(torch)
    steps = torch.compile(lambda x: torch.sin(model(x)) * x, mode="reduce-overhead")
    x = torch.arange(64 * 64, device="cuda", dtype=torch.float32).reshape(64, 64) / 4096
    with torch.no_grad():
        for step in range(8):
            torch.compiler.cudagraph_mark_step_begin()
            x = steps(x).clone()
            print(step, digest(x))


def threads() -> None:
    """Inference in eight threads, each with its stream; they share a model."""
    import torch

    model = network(torch)
    found = {}

    def serve(number: int) -> None:
        stream = torch.cuda.Stream()
        with torch.cuda.stream(stream), torch.no_grad():
            x = torch.full((64, 64), number / 8, device="cuda")
            for step in range(60):
                host = torch.full((64, 64), step / 60).pin_memory()
                x = torch.tanh(model(x)) + host.to("cuda", non_blocking=True)
                if step % 20 == 19:
                    stream.synchronize()
            found[number] = digest(x)

    torch.cuda.synchronize()
    workers = [threading.Thread(target=serve, args=(n,)) for n in range(8)]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    print([found[n] for n in range(8)])


class Numbers:
    def __len__(self) -> int:
        return 16

    def __getitem__(self, index: int):
        import torch

        return torch.full((256,), float(index))


def received(queue, answers) -> None:
    tensor = queue.get()
    answers.put(digest(tensor * 2))
    del tensor


def forks() -> None:
    """Children of all kinds of a process that uses the GPU."""
    import torch

    x = torch.ones(1 << 16, device="cuda")
    child = os.fork()
    if child == 0:
        os._exit(5)
    print("forked", os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]))
    code = "import sys, torch; print(torch.ones(9, device='cuda').sum().item()); sys.exit(4)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True)
    print("started", done.returncode, done.stdout.strip())
    loader = torch.utils.data.DataLoader(Numbers(), 4, num_workers=2, pin_memory=True)
    for batch in loader:
        x[:1024] += batch.cuda(non_blocking=True).flatten()
    print("loaded", digest(x))
    context = torch.multiprocessing.get_context("spawn")
    queue, answers = context.Queue(), context.Queue()
    process = context.Process(target=received, args=(queue, answers))
    process.start()
    queue.put(x)
    print("shared", answers.get(timeout=120))
    process.join()
    print("joined", process.exitcode, digest(x + 1))


def daemon() -> None:
    """A process that became a daemon, which closed all files, and then uses the GPU."""
    read, write = os.pipe()
    if os.fork() == 0:
        os.setsid()
        if os.fork():
            os._exit(0)
        os.chdir("/")
        os.dup2(write, 200)
        os.closerange(0, 200)
        os.open(os.devnull, os.O_RDWR)
        os.dup2(0, 1)
        os.dup2(0, 2)
        import torch

        x = torch.arange(1 << 16, device="cuda", dtype=torch.float32)
        for _ in range(20):
            x = x * 3 % 11
        os.write(200, digest(x).encode())
        sys.exit(0)
    os.wait()
    os.close(write)
    said = b""
    while part := os.read(read, 100):
        said += part
    print(said.decode())


def expandable() -> None:
    """Memory of virtual addresses that grows, is full once, and is given back."""
    os.environ["PYTORCH_CUDA_ALLOC_CONF"] = "expandable_segments:True"
    import torch

    torch.cuda.set_per_process_memory_fraction(0.02)
    kept = []
    for step in range(30):
        kept.append(torch.full(((step % 7 + 1) << 18,), float(step), device="cuda"))
        if step % 3 == 2:
            kept.pop(step % len(kept))
        if step % 10 == 9:
            torch.cuda.empty_cache()
            print(step, digest(torch.stack([k.sum() for k in kept])))
    try:
        torch.empty(64 << 30, device="cuda")
    except torch.cuda.OutOfMemoryError as error:
        print("refused", str(error).split(".")[0])
    print(len(kept), digest(torch.stack([k.max() for k in kept])))


def profiled() -> None:
    """A profiler which wants CUPTI, twice."""
    import torch
    from torch.profiler import ProfilerActivity, profile

    x = torch.ones(256, 256, device="cuda")
    for _ in range(2):
        with profile(activities=[ProfilerActivity.CPU, ProfilerActivity.CUDA]) as seen:
            for _ in range(5):
                x = x @ x / 256
            torch.cuda.synchronize()
        kernels = [e for e in seen.events() if e.device_type.name == "CUDA"]
        print(digest(x), len(kernels) >= 10)


def tuned() -> None:
    """A kernel of Triton which is tuned, that is, launched with all settings and timed."""
    import torch
    import triton
    import triton.language as tl

    @triton.autotune([triton.Config({"BLOCK": size}) for size in (256, 1024)], key=["n"])
    @triton.jit
    def scale(a, out, n, BLOCK: tl.constexpr):  # noqa: N803
        at = tl.program_id(0) * BLOCK + tl.arange(0, BLOCK)
        tl.store(out + at, tl.load(a + at, mask=at < n) * 3, mask=at < n)

    n = 100_000
    x = torch.arange(n, device="cuda", dtype=torch.float32)
    for _ in range(5):
        out = torch.empty_like(x)
        scale[lambda meta: (triton.cdiv(n, meta["BLOCK"]),)](x, out, n)
        x = out % 13
    print(digest(x))


def fault() -> None:
    """An assertion on the device fails; the program catches the error, and ends with a status."""
    import torch

    table = torch.arange(10.0, device="cuda")
    print(table[torch.tensor([3, 4], device="cuda")].tolist())
    try:
        table[torch.tensor([3, 40], device="cuda")].sum().item()
    except RuntimeError as error:
        print(type(error).__name__, "device-side assert" in str(error))
    sys.stdout.flush()
    os._exit(9)


def alarms() -> None:
    """A signal each millisecond, with a handler, and few more open files allowed."""
    import torch

    x = torch.ones(1 << 16, device="cuda")
    came = []
    most = max(map(int, os.listdir("/proc/self/fd"))) + 24
    resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    signal.signal(signal.SIGALRM, lambda *_: came.append(1))
    signal.setitimer(signal.ITIMER_REAL, 0.001, 0.001)
    for _ in range(300):
        x = x * 3 % 7
        x[:8].cpu()
    signal.setitimer(signal.ITIMER_REAL, 0)
    print(digest(x), len(came) > 5)


def cupy_pools() -> None:
    """CuPy with its pools, on streams, beside PyTorch with the same memory."""
    import cupy as cp
    import torch

    def step(x):
        y = cp.concatenate([x * 2, cp.sort(x)])[::2].copy()
        return y % 11

    x = cp.arange(1 << 16, dtype=cp.float32)
    for name, pool in (
        ("default", cp.get_default_memory_pool()),
        ("async", cp.cuda.MemoryAsyncPool()),
        ("managed", cp.cuda.MemoryPool(cp.cuda.malloc_managed)),
    ):
        with cp.cuda.using_allocator(pool.malloc):
            streams = [cp.cuda.Stream(non_blocking=True) for _ in range(3)]
            for number in range(12):
                with streams[number % 3] as stream:
                    x = step(x)
                    stream.synchronize()
            print(name, hashlib.sha256(cp.asnumpy(x).tobytes()).hexdigest()[:16])
    cp.get_default_memory_pool().free_all_blocks()
    cp.get_default_pinned_memory_pool().free_all_blocks()
    stream = cp.cuda.Stream(non_blocking=True)
    out = cp.zeros_like(x)
    with stream:
        stream.begin_capture()
        cp.multiply(x, 3, out=out)
        graph = stream.end_capture()
        for _ in range(4):
            graph.launch()
        stream.synchronize()
    shared = torch.from_dlpack(out)
    shared.add_(1)
    torch.cuda.synchronize()
    print(digest(shared), float(out.max()))


def jax_donated() -> None:
    """JAX with memory that it reserves, donated arguments, and a function of the host."""
    os.environ["XLA_PYTHON_CLIENT_MEM_FRACTION"] = "0.02"
    os.environ["XLA_FLAGS"] = "--xla_gpu_deterministic_ops=true"
    import jax
    import jax.numpy as jnp
    import numpy as np

    def doubled(x):
        return np.asarray(x) * np.float32(2)

    def step(x):
        y = jnp.tanh(x @ x / 64)
        return y + jax.pure_callback(doubled, jax.ShapeDtypeStruct(y.shape, y.dtype), y)

    run = jax.jit(step, donate_argnums=0)
    loop = jax.jit(lambda x: jax.lax.fori_loop(0, 20, lambda _, v: jnp.sin(v) + 0.5, x))
    x = jnp.asarray(np.arange(4096, dtype=np.float32).reshape(64, 64) / 4096)
    for number in range(6):
        x = loop(run(x))
        print(number, hashlib.sha256(np.asarray(x).tobytes()).hexdigest()[:16])


def busy(torch):
    """Memory of 256 MiB, which much work that is not done yet writes to."""
    x = torch.zeros(1 << 26, device="cuda")
    torch.cuda.synchronize()
    for number in range(20):
        x.add_(number)
        if number % 4 == 0:
            torch.cuda.synchronize()
    return x


def leaves() -> None:
    """Ends at once, with work under way and nothing freed."""
    import torch

    x = busy(torch)
    print(x.numel(), flush=True)
    os._exit(7)


def aborts() -> None:
    import torch

    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    print(busy(torch).numel(), flush=True)
    os.abort()


def killed() -> None:
    """Killed while the recorder writes what changed."""
    import torch

    print(busy(torch).numel(), flush=True)
    os.kill(os.getpid(), signal.SIGKILL)


def killed_by_another() -> None:
    """Killed by a child while it works in two threads."""
    import torch

    x = busy(torch)
    print(x.numel(), flush=True)
    subprocess.Popen(["sh", "-c", f"sleep 0.3; kill -9 {os.getpid()}"])

    def work():
        y = x[: 1 << 20].clone()
        while True:
            y.mul_(1.5).remainder_(3)
            torch.cuda.synchronize()

    threading.Thread(target=work, daemon=True).start()
    time.sleep(60)


def preloaded() -> None:
    """Beside another preloaded library, which wraps a call of CUDA's runtime, and dlsym. The latter
    is not called beside the recorder.
    """
    import torch

    x = torch.ones(1 << 16, device="cuda")
    other = ctypes.CDLL(None)
    before = other.other_launches()
    for _ in range(50):
        x = x * 3 % 7
    torch.cuda.synchronize()
    print(digest(x), other.other_launches() - before)


ENDS = {
    "fault": 9,
    "leaves": 7,
    "aborts": -signal.SIGABRT,
    "killed": -signal.SIGKILL,
    "killed_by_another": -signal.SIGKILL,
}

if __name__ == "__main__":
    globals()[sys.argv[1]]()
