"""Rows of the table for products of fp8 matrices whose blocks of terms have scales of their own:
PyTorch's, and torchao's of blockwise training.

A block has one scale: 1 x 128 elements along the sum, or 128 x 128. The products of a block of
terms are summed in fp32, multiplied by both scales, and the results summed. Where PyTorch has a
product of cuBLASLt's it runs it, since that is faster (decision 106): such rows are for graphs that
are exported.
"""

import torch

from retrograd.aten_table import row
from retrograd.rows.fp8_products import of_one_group, of_one_type, result_type

BLOCK = 128
_OF_LINES, _OF_SQUARES = 4, 5  # of torch.nn.functional.ScalingType


def _blocks(extent, block=BLOCK):
    return -(-extent // block)


def fits(a, b, scale_a, scale_b, block=BLOCK):
    """Whether scales of such shapes are [M or M / block, K / block] and
    [K / block, N or N / block], of matrices [M, K] and [K, N]."""
    if len(scale_a) != 2 or len(scale_b) != 2:
        return False
    (m, k), n = a, b[-1]
    terms = _blocks(k, block)
    return (
        scale_a[0] in (m, _blocks(m, block))
        and (scale_a[1], scale_b[0]) == (terms, terms)
        and scale_b[1] in (n, _blocks(n, block))
    )


def product(call, a, b, scale_a, scale_b, bias=None, out_dtype=None, block=BLOCK):
    """[M, K] x [K, N] with scales of such shapes as `fits` says."""
    columns = call.b.reshape(scale_b, (1, *scale_b.shape))
    dtype = result_type(call, a, out_dtype)
    return of_one_group(call, a, b, (scale_a, columns), block, bias, dtype)


def _wrong(call, scale_a, scale_b):
    return call.error(
        f"scales of shapes {list(scale_a.shape)} and {list(scale_b.shape)} have no counterpart; "
        "there is one of each block along the sum"
    )


def by_recipe(call, a, b, scale_a, scale_b, recipe_a, recipe_b):
    """Scales as _scaled_mm_v2 takes them, as `fits` says: of squares they are [K / 128, ..], with
    rows behind them that fill up four, of lines [.., K / 128]."""
    terms, out = _blocks(a.shape[1]), call.b
    if recipe_a == _OF_SQUARES:
        scale_a = out.permute(out.slice(scale_a, 0, 0, terms), [1, 0])
    if recipe_b == _OF_SQUARES:
        scale_b = out.slice(scale_b, 0, 0, terms)
    else:
        scale_b = out.permute(scale_b, [1, 0])
    if not fits(a.shape, b.shape, scale_a.shape, scale_b.shape):
        raise _wrong(call, scale_a, scale_b)
    return scale_a, scale_b


@row(
    "torchao.triton_fp8_gemm_1x128_128x128.default",
    "torchao.triton_fp8_gemm_1x128_128x1.default",
)
def gemm(call, a, b, scale_a, scale_b, block_size=BLOCK, out_dtype=torch.float32):
    """[M, K] x [K, N] with scales [M, K / block] and [K / block, N / block] or [K / block, N]."""
    if not fits(a.shape, b.shape, scale_a.shape, scale_b.shape, block_size):
        raise _wrong(call, scale_a, scale_b)
    return product(call, a, b, scale_a, scale_b, None, out_dtype, block_size)


def _pytorch_has(*_, **__):
    return False


@row("torchao.blockwise_scaled_mm.default", takes=_pytorch_has)
def scaled_mm(call, a, b, scale_a, recipe_a, scale_b, recipe_b, out_dtype):
    """That of _scaled_mm_v2."""
    scales = by_recipe(call, a, b, scale_a, scale_b, recipe_a, recipe_b)
    return product(call, a, b, *scales, None, out_dtype)


@row("torchao.emulated_blockwise_scaled_grouped_mm.default")
def scaled_grouped_mm(
    call, a, b, scale_a, recipe_a, scale_b, recipe_b, offs, out_dtype, block_size=BLOCK
):
    """[S, K] x [G, K, N], the rows in groups, or [M, S] x [S, N], the sums in groups; offs: where
    each of the G groups ends. torchao multiplies in bf16 what is rounded to it with its scale."""
    columns = scale_b if scale_b.rank == 3 else call.b.reshape(scale_b, (1, *scale_b.shape))
    groups = b.shape[0] if b.rank == 3 else 1
    if columns.shape[0] != groups or not fits(
        a.shape, b.shape, scale_a.shape, columns.shape[1:], block_size
    ):
        raise _wrong(call, scale_a, scale_b)
    a, b = of_one_type(call, a, b)
    return call.b.grouped_matmul(a, b, offs, out_dtype, (scale_a, columns), block_size)
