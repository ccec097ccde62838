"""Rows of the table for the quantisers of torchao's blockwise FP8 training.

A block has one scale: of 1 x 128 elements, of 128 x 1 or of 128 x 128. The scale is the FP8 type's
largest number over the block's largest magnitude, rounded to fp32, results are clamped to the
type's numbers before they are cast, and what is handed on is 1 / scale. A block that the matrix
ends in has the elements that there are. A NaN makes its block NaN, an infinity the block's finite
numbers 0.
"""

import torch

from retrograd.aten_table import row
from retrograd.rows.fp8 import check, exact_quotient, quantised, scale_of

E4M3 = torch.float8_e4m3fn


def _checked(call, x, rank, block, dtype):
    check(call, x, rank, dtype)
    if not isinstance(block, int) or block < 1:
        raise call.error(f"blocks of {block} elements have no counterpart; they have 1 or more")
    if 0 in x.shape:
        raise call.error("a matrix without elements has no blocks; skip it")


def _whole(call, x, high, wide, dtype):
    """Of blocks that fill the matrix [.., M, K]: it in FP8, and [.., M / high, K / wide]."""
    b, (*lead, rows, columns) = call.b, x.shape
    across, along = rows // high, columns // wide
    n = len(lead)
    blocks = b.reshape(x, (*lead, across, high, along, wide))
    folded = [axis for axis, extent in ((n + 1, high), (n + 3, wide)) if extent > 1]
    largest = b.pointwise("abs", blocks)
    if folded:
        largest = b.reduce("amax", largest, folded, keep=True)
    scale = scale_of(call, largest, dtype, False)
    y = b.reshape(quantised(call, blocks, scale, dtype), x.shape)
    return y, b.reshape(exact_quotient(call, 1.0, scale), (*lead, across, along))


def _cut(call, x, axis, size):
    """The part of x that blocks of so many fill along the axis, and the rest, if there are both."""
    extent = x.shape[axis]
    end = extent - extent % size
    if end in (0, extent):
        return [x]
    return [call.b.slice(x, axis, 0, end), call.b.slice(x, axis, end, extent)]


def _of_blocks(call, x, high, wide, dtype):
    """[.., M, K] in FP8 by blocks of high x wide, and 1 / scale of each block."""
    across, along = x.rank - 2, x.rank - 1
    lines = []
    for part in _cut(call, x, across, high):
        pieces = [
            _whole(call, p, min(high, p.shape[across]), min(wide, p.shape[along]), dtype)
            for p in _cut(call, part, along, wide)
        ]
        lines.append(tuple(_joined(call, r, along) for r in zip(*pieces, strict=True)))
    return tuple(_joined(call, r, across) for r in zip(*lines, strict=True))


def _joined(call, parts, axis):
    return parts[0] if len(parts) == 1 else call.b.cat(list(parts), axis)


def _transposed(call, results):
    """The matrices and scales with their last two axes swapped."""
    n = results[0].rank
    order = [*range(n - 2), n - 1, n - 2]
    return tuple(call.b.permute(r, order) for r in results)


@row("torchao.triton_fp8_blockwise_act_quant_lhs.default")
def rows_of_blocks(call, x, block_size=128, dtype=E4M3):
    """[M, K] -> [M, K], [M, K / block]."""
    _checked(call, x, 2, block_size, dtype)
    return _of_blocks(call, x, 1, block_size, dtype)


@row("torchao.triton_fp8_blockwise_act_quant_rhs.default")
def columns_of_blocks(call, x, block_size=128, dtype=E4M3):
    """[M, K] -> [M, K], [M / block, K]."""
    _checked(call, x, 2, block_size, dtype)
    return _of_blocks(call, x, block_size, 1, dtype)


@row("torchao.triton_fp8_blockwise_act_quant_transposed_lhs.default")
def transposed_columns_of_blocks(call, x, block_size=128, dtype=E4M3):
    """[M, K] -> [K, M], [K, M / block]."""
    return _transposed(call, columns_of_blocks(call, x, block_size, dtype))


@row("torchao.triton_fp8_blockwise_weight_quant_rhs.default")
def squares(call, x, block_size=128, dtype=E4M3):
    """[M, N] -> [M, N], [M / block, N / block]."""
    _checked(call, x, 2, block_size, dtype)
    return _of_blocks(call, x, block_size, block_size, dtype)


@row("torchao.triton_fp8_blockwise_weight_quant_transposed_rhs.default")
def transposed_squares(call, x, block_size=128, dtype=E4M3):
    """[M, N] -> [N, M], [N / block, M / block]."""
    return _transposed(call, squares(call, x, block_size, dtype))


@row("torchao.triton_fp8_blockwise_weight_quant_grouped_transposed_rhs.default")
def squares_of_experts(call, x, block_size=128, dtype=E4M3):
    """[E, K, N] -> [E, K, N], [E, K / block, N / block]."""
    _checked(call, x, 3, block_size, dtype)
    return _of_blocks(call, x, block_size, block_size, dtype)


@row("torchao.triton_fp8_blockwise_weight_quant_grouped_rhs.default")
def transposed_squares_of_experts(call, x, block_size=128, dtype=E4M3):
    """[E, K, N] -> [E, N, K], [E, N / block, K / block]."""
    return _transposed(call, squares_of_experts(call, x, block_size, dtype))
