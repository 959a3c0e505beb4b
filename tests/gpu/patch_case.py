"""Many kernels, of PyTorch, cuBLAS and Triton, whose results depend on nothing but their code.

Prints a line for each operation: its name, and a digest of what it gives, or why it gives nothing.
"""

# mypy: ignore-errors
import hashlib
import sys
from collections.abc import Callable, Iterator, Sequence

import torch
import torch.nn.functional as nnf

ON = {"device": "cuda"}
Results = Sequence[torch.Tensor]
Operations = Iterator[tuple[str, Callable[[], Results]]]


def digest(results: Results) -> str:
    sha = hashlib.sha256()
    for result in results:
        sha.update(result.detach().contiguous().view(-1).view(torch.uint8).cpu().numpy())
    return sha.hexdigest()[:16]


def show(operations: Operations) -> None:
    for name, operation in operations:
        try:
            said = digest(operation())
        except Exception as e:
            said = f"refused: {type(e).__name__}: {str(e).partition(chr(10))[0]}"
        print(name, said, sep="\t", flush=True)


def elementwise(x: torch.Tensor) -> Operations:
    for name in ("sin", "exp", "tanh", "erf", "lgamma", "sqrt", "round", "sigmoid", "log1p"):
        yield name, lambda name=name: [getattr(torch, name)(x.abs() + 0.5)]
    for name in ("gelu", "silu", "softplus", "elu"):
        yield name, lambda name=name: [getattr(nnf, name)(x)]
    yield "where", lambda: [torch.where(x > 0, x * 2, x / 3)]
    yield "kinds", lambda: [x.half() + 1, x.bfloat16() * 3, x.double() ** 3]
    yield "integers", lambda: [(x * 100).long() % 17, (x * 100).int() // 7, (x > 0) ^ (x < 1)]


def reductions(x: torch.Tensor) -> Operations:
    yield "sums", lambda: [x.sum(), x.sum(0), x.sum(1), x.half().sum(1)]
    yield "means", lambda: [x.mean(0), x.var(1), x.norm(), x.prod(1)]
    yield "extremes", lambda: [x.max(), *x.max(1), *x.min(0), x.argmax(1), (x > 0).any(0)]
    yield "scans", lambda: [(x * 9).int().cumsum(1), x.cumprod(0), *x.cummax(1)]
    yield (
        "sorted",
        lambda: [*x.sort(dim=1, stable=True), *x.flatten()[:3000].sort(dim=0, stable=True)],
    )
    yield "chosen", lambda: [x.topk(5, 1)[0], x.kthvalue(7, 1)[0]]
    yield "softmax", lambda: [x.softmax(1), x.log_softmax(0), x.t().contiguous().softmax(0)]


def shapes(x: torch.Tensor) -> Operations:
    at = torch.arange(0, x.shape[0], 3, **ON)
    yield "indexed", lambda: [x[at], x.index_select(1, at), x[x > 1]]
    yield "gathered", lambda: [x.gather(1, at.repeat(len(x), 1))]
    yield "joined", lambda: [torch.cat([x, x[:, :50]], 1), torch.stack([x, x])]
    yield "turned", lambda: [x.t().contiguous(), x.flip(0), x.roll(3, 1), x.tril()]
    yield "made", lambda: [torch.arange(999, **ON), torch.eye(50, **ON), torch.randperm(500, **ON)]
    yield "random", lambda: [torch.rand(999, **ON), torch.randn(999, **ON)]
    yield "random integers", lambda: [torch.randint(9, (99,), **ON)]
    yield "unique", lambda: [*x.round().unique(return_counts=True), x.nonzero()]


def layers(x: torch.Tensor) -> Operations:
    weight, bias = torch.randn(x.shape[1], **ON), torch.randn(x.shape[1], **ON)
    yield "layer norm", lambda: [nnf.layer_norm(x, weight.shape, weight, bias)]
    yield "batch norm", lambda: [nnf.batch_norm(x, bias, weight**2)]
    yield "group norm", lambda: [nnf.group_norm(x.view(6, 8, -1), 4)]
    yield "rms norm", lambda: [nnf.rms_norm(x, weight.shape, weight)]
    images = x[:96, :256].reshape(2, 3, 64, 64)
    yield "pooled", lambda: [nnf.max_pool2d(images, 3), nnf.avg_pool2d(images, 2)]
    yield "padded", lambda: [nnf.pad(images, (1, 2)), nnf.pad(images, (1, 2, 3, 4), mode="reflect")]
    yield "scaled", lambda: [nnf.interpolate(images, scale_factor=1.7, mode="bilinear")]
    yield "embedded", lambda: [nnf.embedding((x[:5].abs() * 20).long() % len(x), x)]
    yield "loss", lambda: [nnf.cross_entropy(x, torch.arange(len(x), **ON) % 7)]
    yield "square loss", lambda: [nnf.mse_loss(x, x * 2)]
    q = x[:64, :256].reshape(1, 4, 64, 64)
    for kind in (torch.half, torch.float):
        yield (
            f"attention {kind}",
            lambda kind=kind: [nnf.scaled_dot_product_attention(*[q.to(kind)] * 3, is_causal=True)],
        )

    def backward() -> Results:
        wide = x.clone().requires_grad_()
        (nnf.gelu(wide) @ wide.t()).softmax(1).square().sum().backward()
        return [wide.grad]

    yield "backward", backward


def products(x: torch.Tensor) -> Operations:
    sizes = ((64, 64, 64), (512, 1024, 2048), (1000, 24, 333), (4096, 4096, 512))
    for kind in (torch.float, torch.half, torch.bfloat16, torch.double):
        for m, n, k in sizes[: 2 if kind == torch.double else 4]:
            a, b = torch.randn(m, k, **ON).to(kind), torch.randn(k, n, **ON).to(kind)
            yield f"product {kind} {m} {n} {k}", lambda a=a, b=b: [a @ b]
    torch.backends.cuda.matmul.allow_tf32 = True
    a = torch.randn(768, 768, **ON)
    yield "product tf32", lambda: [a @ a, a @ a.t()]
    yield "products tf32", lambda: [torch.bmm(a.view(8, 96, 768), a.view(8, 768, 96))]
    yield "vectors", lambda: [a @ a[0], a[0] @ a[1]]
    yield "linear", lambda: [nnf.linear(a, a, a[0]), torch.addmm(a[0], a.t(), a)]


def triton(x: torch.Tensor) -> Operations:
    import patch_triton

    return patch_triton.operations()


GROUPS = (elementwise, reductions, shapes, layers, products, triton)


def main() -> None:
    """Arguments: the groups wanted, all without any."""
    for group in GROUPS:
        if not sys.argv[1:] or group.__name__ in sys.argv[1:]:
            torch.manual_seed(1)
            x = torch.randn(192, 768, **ON)
            show(group(x))


if __name__ == "__main__":
    main()
