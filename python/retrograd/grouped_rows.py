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
