"""Rows of the table for matmuls of groups, whose ends are data.

PyTorch leaves whatever was in memory in rows behind the last group; here they are zeros.
"""

import torch

from retrograd.aten_table import row


@row("aten._grouped_mm.default")
def grouped_mm(call, a, b, offs=None, bias=None, out_dtype=None):
    """[S, K] x [G, K, N], the rows in groups, or [M, S] x [S, N], the sums in groups; offs: where
    each of the G groups ends."""
    if bias is not None:
        raise call.error("a bias of grouped matmuls has no counterpart; add it to the result")
    if offs is None:
        raise call.error("without offs it is a batch of matmuls; use torch.bmm")
    if a.rank != 2:
        raise call.error(
            f"a first operand of rank {a.rank} has no counterpart; groups are of rows, "
            "[S, K] x [G, K, N], or of sums, [M, S] x [S, N]"
        )
    if offs.dtype != torch.int32:
        raise call.error(f"offs of {offs.dtype} has no counterpart; cast it to int32")
    return call.b.grouped_matmul(a, b, offs, out_dtype)


# What transformers takes in place of it where PyTorch has no kernel or traces none.
@row("transformers.grouped_mm_fallback.default")
def grouped_mm_fallback(call, x, weight, offs):
    """[S, K] x [G, K, N], the rows in groups; offs of int32 or int64."""
    return call.b.grouped_matmul(x, weight, call.b.cast(offs, torch.int32))


@row("transformers.grouped_mm_fallback_backward.default")
def grouped_mm_fallback_backward(call, x, weight, offs, dy):
    """Of [S, N] the gradients of x and weight: dy_g W_gᵀ and x_gᵀ dy_g of each group g."""
    b, ends = call.b, call.b.cast(offs, torch.int32)
    dx = b.grouped_matmul(dy, b.permute(weight, [0, 2, 1]), ends)
    return dx, b.grouped_matmul(b.permute(x, [1, 0]), dy, ends)
