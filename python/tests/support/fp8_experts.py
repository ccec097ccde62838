"""torchao's FP8 training of linear layers of experts: all three products in FP8, each operand
quantised by rows or by columns of groups, with the quantisers under torchao's names."""

import fp8_samples
import torch

E4M3 = torch.float8_e4m3fn


def _product(a, b, of_rows, of_columns, ends, dtype):
    """Of quantised matrices and what they were multiplied by; PyTorch wants the second by columns.
    In float64 nothing is rounded."""
    scales = of_rows.reciprocal().flatten(), of_columns.reciprocal()
    b = b if b.stride(-2) == 1 else b.mT.contiguous().mT
    if dtype == torch.float64:
        return fp8_samples.scaled_products(a, b, *scales, ends)
    return torch._scaled_grouped_mm(
        a, b, *scales, offs=ends, out_dtype=dtype, use_fast_accum=True
    )


class _GroupedMatmul(torch.autograd.Function):
    @staticmethod
    def forward(ctx, x, w, ends):
        ctx.save_for_backward(x, w, ends)
        quantise = torch.ops.torchao
        q, s = quantise.triton_fp8_rowwise_2d_scale_and_cast(x, E4M3, True)
        qw, sw = quantise.triton_fp8_colwise_3d_scale_and_cast(w, E4M3, True)
        return _product(q, qw, s, sw.squeeze(1), ends, x.dtype)

    @staticmethod
    def backward(ctx, dy):
        x, w, ends = ctx.saved_tensors
        quantise = torch.ops.torchao
        q, s = quantise.triton_fp8_rowwise_2d_scale_and_cast(dy, E4M3, True)
        qw, sw = quantise.triton_fp8_rowwise_transpose_rhs(w, E4M3, True)
        dx = _product(q, qw, s, sw, ends, x.dtype)
        qd, sd, qx, sx = quantise.triton_fp8_per_group_colwise_scales_dual(dy, x, ends, E4M3, True)
        return dx, _product(qd.t(), qx, sd, sx, ends, x.dtype).mT, None


def grouped_matmul(x, w, offs):
    """x [S, K] times w [G, K, N], the rows of x in groups that end at `offs` [G] -> [S, N]."""
    return _GroupedMatmul.apply(x, w, offs)
