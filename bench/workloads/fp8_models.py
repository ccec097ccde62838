"""FP8 models that bench/ops.py measures: products of groups of scaled matrices, and linear layers of
experts as torchao trains them. PyTorch and torchao have kernels of them for GPUs alone; the layers
need torchao (pip install torchao).
"""

import torch
from torch import nn

FP8, BF16 = torch.float8_e4m3fn, torch.bfloat16
UNIT = 16  # of groups' sizes, for PyTorch's kernels


class _Product(torch.autograd.Function):
    """Zeros, whose gradient is the product, its rows' scales times one element of what comes in:
    else a compiler would make it in the forward."""

    @staticmethod
    def forward(ctx, x, *factors):
        ctx.save_for_backward(*factors)
        return x.clone()

    @staticmethod
    def backward(ctx, d):
        a, b, of_rows, of_columns, ends = ctx.saved_tensors
        product = torch._scaled_grouped_mm(
            a, b, of_rows * d.flatten()[0].float(), of_columns, offs=ends, out_dtype=BF16,
            use_fast_accum=True,
        )  # fmt: skip
        return product, *[None] * 5


class Product(nn.Module):
    def forward(self, x, one, *factors):
        return (_Product.apply(x, *factors).float() * one).sum()


def ends_of(rows, groups):
    """Ends of groups, the largest of about three times the smallest's rows."""
    shares = 0.5 + torch.rand(groups)
    return (shares.cumsum(0) / shares.sum() * rows / UNIT).round().to(torch.int32) * UNIT


def _eighth(*shape):
    return torch.randn(shape).to(FP8)


def _powers(*shape):
    return 2.0 ** torch.randint(-3, 4, shape).float()


def product_of_rows(rows, width, results, groups):
    """The input gradient of a linear layer of experts: [S, N] x [G, N, K], S in groups."""
    x = torch.zeros(rows, width, dtype=BF16, requires_grad=True)
    factors = (
        _eighth(rows, results), _eighth(groups, width, results).mT, _powers(rows),
        _powers(groups, width), ends_of(rows, groups),
    )  # fmt: skip
    return Product(), (x, torch.ones(()), *factors)


def product_of_sums(rows, width, results, groups):
    """The weight gradient: [N, S] x [S, K], S in groups, both as they lie in memory along S."""
    x = torch.zeros(groups, results, width, dtype=BF16, requires_grad=True)
    factors = (
        _eighth(results, rows), _eighth(width, rows).t(), _powers(groups * results),
        _powers(groups * width), ends_of(rows, groups),
    )  # fmt: skip
    return Product(), (x, torch.ones(()), *factors)


class Linear(nn.Module):
    """A linear layer of experts: FP8 in all three products, each quantised by itself."""

    def __init__(self, width, results, groups):
        super().__init__()
        self.table = nn.Parameter(torch.randn(groups, results, width, dtype=BF16))

    def forward(self, x, ends, weight):
        from torchao.prototype.moe_training import fp8_grouped_mm

        y = fp8_grouped_mm._to_fp8_rowwise_then_scaled_grouped_mm(
            x, self.table.mT, ends, out_dtype=BF16, float8_dtype=FP8,
            pad_token_groups_for_grouped_mm=False,
        )  # fmt: skip
        return (y * weight).sum()


def linear(rows, width, results, groups):
    x = torch.randn(rows, width, dtype=BF16, requires_grad=True)
    weight = torch.randn(rows, results, dtype=BF16)
    return Linear(width, results, groups), (x, ends_of(rows, groups), weight)


def _layer(name, rows, width, results, groups):
    full = dict(rows=rows, width=width, results=results, groups=groups)
    tiny = dict(rows=64, width=32, results=48, groups=3)
    return {
        f"fp8_input_gradient_{name}": (product_of_rows, full, tiny),
        f"fp8_weight_gradient_{name}": (product_of_sums, full, tiny),
        f"fp8_experts_{name}": (linear, full, tiny),
    }


# name: (maker, its sizes, small sizes)
MODELS = {
    **_layer("deepseek_v3", 32768, 7168, 2048, 8),
    **_layer("llama4", 16640, 5120, 8192, 16),
    **_layer("mixtral", 32768, 4096, 7168, 8),
    **_layer("deepseek_lite", 49152, 2048, 2816, 64),
    **_layer("qwen3", 65536, 2048, 1536, 128),
}
