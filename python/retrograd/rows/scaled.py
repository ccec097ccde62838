"""Rows of the table for products of fp8 matrices, whose results are multiplied by the scales of the
matrices' rows and columns, or whose blocks of terms have scales of their own."""

import torch

from retrograd.aten_table import row
from retrograd.rows import block_scales
from retrograd.rows.fp8_products import of_one_group, of_one_type, plain, result_type


@row("aten._scaled_grouped_mm.default")
def scaled_grouped_mm(
    call, a, b, scale_a, scale_b, offs=None, bias=None, scale_result=None, out_dtype=None,
    use_fast_accum=False,
):  # fmt: skip
    """[S, K] x [G, K, N] with scales [S] and [G, N], the rows in groups, or [M, S] x [S, N] with
    scales [G M] and [G N], the sums in groups; offs: where each of the G groups ends."""
    plain(call, bias, scale_result)
    if offs is None or a.rank != 2:
        raise call.error("groups are of rows, [S, K] x [G, K, N], or of sums, [M, S] x [S, N]")
    if offs.dtype != torch.int32:
        raise call.error(f"offs of {offs.dtype} has no counterpart; cast it to int32")
    if scale_a.dtype != torch.float32 or scale_b.dtype != torch.float32:
        raise call.error(f"scales of {scale_a.dtype} and {scale_b.dtype} have no counterpart")
    groups, rows, columns = offs.shape[0], a.shape[0], b.shape[-1]
    of_rows = (rows,) if b.rank == 3 else (groups, rows)
    of_columns = (groups, columns)
    scales = call.b.reshape(scale_a, of_rows), call.b.reshape(scale_b, of_columns)
    a, b = of_one_type(call, a, b)
    return call.b.grouped_matmul(a, b, offs, out_dtype or torch.bfloat16, scales)


def _one_or_lines(a, b, scale_a, scale_b, *_, **__):
    """Whether there is one scale of each matrix, or of each row and column; else of blocks, of
    which PyTorch has the faster product (decision 106)."""
    matrices, scales = [[n.meta["val"] for n in pair] for pair in ((a, b), (scale_a, scale_b))]
    lines = matrices[0].shape[0], matrices[1].shape[-1]
    shapes = [tuple(s.shape) for s in scales]
    return all(s.numel() == 1 for s in scales) or shapes == [(lines[0], 1), (1, lines[1])]


@row("aten._scaled_mm.default", takes=_one_or_lines)
def scaled_mm(
    call, a, b, scale_a, scale_b, bias=None, scale_result=None, out_dtype=None,
    use_fast_accum=False,
):  # fmt: skip
    """[M, K] x [K, N] with one scale of each matrix, or one of each row, [M, 1], and column,
    [1, N], or of each block, [M or M / 128, K / 128] and [K / 128, N or N / 128]. As the product of
    one group of rows it is scaled by the kernel that multiplies."""
    plain(call, None, scale_result)
    rows, columns = a.shape[0], b.shape[-1]
    one = len([s for s in (scale_a, scale_b) if s.shape in ((), (1,), (1, 1))]) == 2
    lines = (scale_a.shape, scale_b.shape) == ((rows, 1), (1, columns))
    if not one and not lines and block_scales.fits(a.shape, b.shape, scale_a.shape, scale_b.shape):
        return block_scales.product(call, a, b, scale_a, scale_b, bias, out_dtype)
    if not one and not lines:
        raise call.error(
            f"scales of shapes {list(scale_a.shape)} and {list(scale_b.shape)} have no counterpart; "
            f"there is one of each matrix, or [{rows}, 1] and [1, {columns}], or one of each block"
        )
    out, dtype = call.b, result_type(call, a, out_dtype)
    of_rows, of_columns = (1, 1) if one else (rows, columns)
    scales = (
        out.expand(out.reshape(scale_a, (of_rows,)), (rows,)),
        out.expand(out.reshape(scale_b, (1, of_columns)), (1, columns)),
    )
    return of_one_group(call, a, b, scales, 0, bias, dtype)


# Of torch.nn.functional.ScalingType.
_OF_MATRICES, _OF_LINES = [0], [1]
_OF_BLOCKS = [[4, 4], [4, 5], [5, 4]]  # of 1 x 128 and 128 x 128 elements


def _is_known(recipe_a, swizzle_a, recipe_b, swizzle_b, contraction_dim):
    """Whether scales are of matrices, of lines or of blocks, unswizzled, and sums are along [1] and
    [0]."""
    both = [*recipe_a, *recipe_b]
    known = both in _OF_BLOCKS or (both[:1] in (_OF_MATRICES, _OF_LINES) and both == 2 * both[:1])
    return (
        known
        and not any((*swizzle_a, *swizzle_b))
        and [d % 2 for d in contraction_dim] in ([], [1, 0])
    )


def _takes_recipe(
    a, b, scale_a, recipe_a, swizzle_a, scale_b, recipe_b, swizzle_b, bias=None, out_dtype=None,
    contraction_dim=(), use_fast_accum=False,
):  # fmt: skip
    known = _is_known(recipe_a, swizzle_a, recipe_b, swizzle_b, contraction_dim)
    return known and [*recipe_a, *recipe_b] not in _OF_BLOCKS


def _takes_recipe_of_groups(
    a, b, scale_a, recipe_a, swizzle_a, scale_b, recipe_b, swizzle_b, offs=None, bias=None,
    out_dtype=None, contraction_dim=(), use_fast_accum=False,
):  # fmt: skip
    known = _is_known(recipe_a, swizzle_a, recipe_b, swizzle_b, contraction_dim)
    return known and list(recipe_a) == _OF_LINES


def _other_recipe(call, recipe_a, recipe_b):
    return call.error(
        f"scales by recipes {list(recipe_a)}, {list(recipe_b)} have no counterpart; there is one "
        "of each matrix, of each row and column, or of blocks of 1 x 128 or 128 x 128, without a "
        "swizzle"
    )


@row("aten._scaled_mm_v2.default", takes=_takes_recipe)
def scaled_mm_v2(
    call, a, b, scale_a, recipe_a, swizzle_a, scale_b, recipe_b, swizzle_b, bias=None,
    out_dtype=None, contraction_dim=(), use_fast_accum=False,
):  # fmt: skip
    """[M, K] x [K, N] by ScalingType.TensorWise or RowWise of both matrices, or by BlockWise1x128
    of both or of one and BlockWise128x128 of the other."""
    if not _is_known(recipe_a, swizzle_a, recipe_b, swizzle_b, contraction_dim):
        raise _other_recipe(call, recipe_a, recipe_b)
    if [*recipe_a, *recipe_b] in _OF_BLOCKS:
        recipes = recipe_a[0], recipe_b[0]
        scales = block_scales.by_recipe(call, a, b, scale_a[0], scale_b[0], *recipes)
        return block_scales.product(call, a, b, *scales, bias, out_dtype)
    lines = list(recipe_a) == _OF_LINES
    of_rows, of_columns = ((a.shape[0], 1), (1, b.shape[-1])) if lines else ((1,), (1,))
    scales = call.b.reshape(scale_a[0], of_rows), call.b.reshape(scale_b[0], of_columns)
    return scaled_mm(call, a, b, *scales, bias, None, out_dtype)


@row("aten._scaled_grouped_mm_v2.default", takes=_takes_recipe_of_groups)
def scaled_grouped_mm_v2(
    call, a, b, scale_a, recipe_a, swizzle_a, scale_b, recipe_b, swizzle_b, offs=None, bias=None,
    out_dtype=None, contraction_dim=(), use_fast_accum=False,
):  # fmt: skip
    """The products of scaled_grouped_mm by ScalingType.RowWise of both matrices."""
    known = _is_known(recipe_a, swizzle_a, recipe_b, swizzle_b, contraction_dim)
    if not known or list(recipe_a) != _OF_LINES:
        raise call.error(
            f"scales of groups by recipes {list(recipe_a)}, {list(recipe_b)} have no counterpart; "
            "there is one of each row and column, without a swizzle"
        )
    return scaled_grouped_mm(call, a, b, scale_a[0], scale_b[0], offs, bias, None, out_dtype)
