"""Many kernels, of PyTorch, cuBLAS and Triton, whose results depend on nothing but their code.

Prints a line for each operation: its name, and a digest of what it gives.
"""

# mypy: ignore-errors
import hashlib
import sys

import torch
import torch.nn.functional as nnf

ON = {"device": "cuda"}


def show(name: str, *tensors: torch.Tensor) -> None:
    digest = hashlib.sha256()
    for tensor in tensors:
        digest.update(tensor.detach().contiguous().view(-1).view(torch.uint8).cpu().numpy())
    print(name, digest.hexdigest()[:16], flush=True)


def elementwise(x: torch.Tensor) -> None:
    for name in ("sin", "exp", "tanh", "erf", "lgamma", "sqrt", "round", "sigmoid", "log1p"):
        show(name, getattr(torch, name)(x.abs() + 0.5))
    for name in ("gelu", "silu", "softplus", "elu"):
        show(name, getattr(nnf, name)(x))
    show("where", torch.where(x > 0, x * 2, x / 3), x.half() + 1, x.bfloat16() * 3, x.double() ** 3)
    show("integers", (x * 100).long() % 17, (x * 100).int() // 7, (x > 0) ^ (x < 1))


def reductions(x: torch.Tensor) -> None:
    show("sums", x.sum(), x.sum(0), x.sum(1), x.half().sum(1), x.mean(0), x.var(1), x.norm())
    show("extremes", x.max(), *x.max(1), *x.min(0), x.argmax(1), x.prod(1), (x > 0).any(0))
    show("scans", x.cumsum(1), x.cumprod(0), *x.cummax(1), x.logcumsumexp(1))
    show("sorted", *x.sort(1), *x.flatten()[:3000].sort(), *x.topk(5, 1), *x.kthvalue(7, 1))
    show("softmax", x.softmax(1), x.log_softmax(0), x.t().contiguous().softmax(0))


def shapes(x: torch.Tensor) -> None:
    at = torch.arange(0, x.shape[0], 3, **ON)
    show("indexed", x[at], x.index_select(1, at), x.gather(1, at.repeat(len(x), 1)), x[x > 1])
    show("joined", torch.cat([x, x.t()], 1), x.flip(0), x.roll(3, 1), x.tril(), torch.stack([x, x]))
    show("made", torch.arange(999, **ON), torch.eye(50, **ON), torch.randperm(500, **ON))
    show("random", torch.rand(999, **ON), torch.randn(999, **ON), torch.randint(9, (99,), **ON))
    show("unique", *x.round().unique(return_counts=True), x.nonzero(), torch.bincount(at))


def layers(x: torch.Tensor) -> None:
    weight, bias = torch.randn(x.shape[1], **ON), torch.randn(x.shape[1], **ON)
    show("norms", nnf.layer_norm(x, weight.shape, weight, bias), nnf.batch_norm(x, bias, weight**2))
    show("groups", nnf.group_norm(x.view(6, 8, -1), 4), nnf.rms_norm(x, weight.shape, weight))
    images = x[:96, :256].reshape(2, 3, 64, 64)
    show("pooled", nnf.max_pool2d(images, 3), nnf.avg_pool2d(images, 2), nnf.pad(images, (1, 2)))
    show("scaled", nnf.interpolate(images, scale_factor=1.7, mode="bilinear"))
    show("embedded", nnf.embedding((x[:5].abs() * 20).long() % len(x), x))
    show("loss", nnf.cross_entropy(x, torch.arange(len(x), **ON) % 7), nnf.mse_loss(x, x * 2))
    q = x[:64, :256].reshape(1, 4, 64, 64)
    for kind in (torch.half, torch.float):
        some = [q.to(kind)] * 3
        show(f"attention {kind}", nnf.scaled_dot_product_attention(*some, is_causal=True))
    wide = x.clone().requires_grad_()
    (nnf.gelu(wide) @ wide.t()).softmax(1).square().sum().backward()
    show("backward", wide.grad)


def products() -> None:
    for kind in (torch.float, torch.half, torch.bfloat16, torch.double):
        for m, n, k in ((64, 64, 64), (512, 1024, 2048), (1000, 24, 333), (4096, 4096, 512)):
            if kind == torch.double and m > 1000:
                continue
            a, b = torch.randn(m, k, **ON).to(kind), torch.randn(k, n, **ON).to(kind)
            show(f"product {kind} {m} {n} {k}", a @ b)
    torch.backends.cuda.matmul.allow_tf32 = True
    a = torch.randn(768, 768, **ON)
    show("product tf32", a @ a, a @ a.t(), torch.bmm(a.view(8, 96, 768), a.view(8, 768, 96)))
    show("vectors", a @ a[0], a[0] @ a[1], nnf.linear(a, a, a[0]), torch.addmm(a[0], a.t(), a))


def triton_kernels() -> None:
    import patch_triton

    for name, results in patch_triton.run():
        show(f"triton {name}", *results)


def main() -> None:
    torch.manual_seed(1)
    x = torch.randn(192, 768, **ON)
    wanted = sys.argv[1:] or ["elementwise", "reductions", "shapes", "layers", "products", "triton"]
    for name in wanted:
        if name == "products":
            products()
        elif name == "triton":
            triton_kernels()
        else:
            globals()[name](x)


if __name__ == "__main__":
    main()
