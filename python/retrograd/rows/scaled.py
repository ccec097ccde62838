"""Rows of the table for products of fp8 matrices, whose results are multiplied by the scales of the
matrices' rows and columns."""

import torch

from retrograd.aten_table import row

FP8 = (
    torch.float8_e4m3fn, torch.float8_e5m2, torch.float8_e4m3fnuz, torch.float8_e5m2fnuz,
)  # fmt: skip


def _plain(call, bias, scale_result):
    """Refuses what the op has no counterpart for."""
    if bias is not None:
        raise call.error("a bias of scaled products has no counterpart; add it to the result")
    if scale_result is not None:
        raise call.error("a scale of the result has no counterpart; multiply the result by it")


def _of_one_type(call, a, b):
    """The matrices; those of two fp8 types in bf16, which has all numbers of both."""
    if a.dtype == b.dtype:
        return a, b
    if a.dtype not in FP8 or b.dtype not in FP8:
        raise call.error(f"a product of {a.dtype} and {b.dtype} has no counterpart; take fp8")
    return call.b.cast(a, torch.bfloat16), call.b.cast(b, torch.bfloat16)


@row("aten._scaled_grouped_mm.default")
def scaled_grouped_mm(
    call, a, b, scale_a, scale_b, offs=None, bias=None, scale_result=None, out_dtype=None,
    use_fast_accum=False,
):  # fmt: skip
    """[S, K] x [G, K, N] with scales [S] and [G, N], the rows in groups, or [M, S] x [S, N] with
    scales [G M] and [G N], the sums in groups; offs: where each of the G groups ends."""
    _plain(call, bias, scale_result)
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
    a, b = _of_one_type(call, a, b)
    return call.b.grouped_matmul(a, b, offs, out_dtype or torch.bfloat16, scales)


def _one_or_lines(a, b, scale_a, scale_b, *_, **__):
    """Whether there is one scale of each matrix, or of each row and column; else of blocks."""
    matrices, scales = [[n.meta["val"] for n in pair] for pair in ((a, b), (scale_a, scale_b))]
    lines = matrices[0].shape[0], matrices[1].shape[-1]
    shapes = [tuple(s.shape) for s in scales]
    return all(s.numel() == 1 for s in scales) or shapes == [(lines[0], 1), (1, lines[1])]


@row("aten._scaled_mm.default", takes=_one_or_lines)
def scaled_mm(
    call, a, b, scale_a, scale_b, bias=None, scale_result=None, out_dtype=None,
    use_fast_accum=False,
):  # fmt: skip
    """[M, K] x [K, N] with one scale of each matrix, or one of each row, [M, 1], and column, [1, N].
    As the product of one group of rows it is scaled by the kernel that multiplies."""
    _plain(call, None, scale_result)
    rows, columns = a.shape[0], b.shape[-1]
    one = len([s for s in (scale_a, scale_b) if s.shape in ((), (1,), (1, 1))]) == 2
    if not one and (scale_a.shape, scale_b.shape) != ((rows, 1), (1, columns)):
        raise call.error(
            f"scales of shapes {list(scale_a.shape)} and {list(scale_b.shape)} have no counterpart; "
            f"there is one of each matrix, or [{rows}, 1] and [1, {columns}]"
        )
    out, wide, dtype = call.b, torch.float32, out_dtype or a.dtype
    if dtype.itemsize == 1:
        raise call.error(f"a product of {dtype} has no counterpart; name a wider out_dtype")
    of_rows, of_columns = (1, 1) if one else (rows, columns)
    scales = (
        out.expand(out.reshape(scale_a, (of_rows,)), (rows,)),
        out.expand(out.reshape(scale_b, (1, of_columns)), (1, columns)),
    )
    a, b = _of_one_type(call, a, b)
    ends, matrices = out.full(rows, torch.int32, (1,)), out.reshape(b, (1, *b.shape))
    if bias is None:
        return out.grouped_matmul(a, matrices, ends, dtype, scales)
    product = out.grouped_matmul(a, matrices, ends, wide, scales)
    return out.cast(out.pointwise("add", product, out.cast(bias, wide)), dtype)


# Of torch.nn.functional.ScalingType.
_OF_MATRICES, _OF_LINES = [0], [1]


def _is_known(recipe_a, swizzle_a, recipe_b, swizzle_b, contraction_dim):
    """Whether scales are of matrices or of lines, unswizzled, and sums are along [1] and [0]."""
    return (
        list(recipe_a) == list(recipe_b)
        and list(recipe_a) in (_OF_MATRICES, _OF_LINES)
        and not any((*swizzle_a, *swizzle_b))
        and [d % 2 for d in contraction_dim] in ([], [1, 0])
    )


def _takes_recipe(
    a, b, scale_a, recipe_a, swizzle_a, scale_b, recipe_b, swizzle_b, bias=None, out_dtype=None,
    contraction_dim=(), use_fast_accum=False,
):  # fmt: skip
    return _is_known(recipe_a, swizzle_a, recipe_b, swizzle_b, contraction_dim)


def _takes_recipe_of_groups(
    a, b, scale_a, recipe_a, swizzle_a, scale_b, recipe_b, swizzle_b, offs=None, bias=None,
    out_dtype=None, contraction_dim=(), use_fast_accum=False,
):  # fmt: skip
    known = _is_known(recipe_a, swizzle_a, recipe_b, swizzle_b, contraction_dim)
    return known and list(recipe_a) == _OF_LINES


def _other_recipe(call, recipe_a, recipe_b):
    return call.error(
        f"scales by recipes {list(recipe_a)}, {list(recipe_b)} have no counterpart; there is one "
        "of each matrix, or of each row and column, without a swizzle"
    )


@row("aten._scaled_mm_v2.default", takes=_takes_recipe)
def scaled_mm_v2(
    call, a, b, scale_a, recipe_a, swizzle_a, scale_b, recipe_b, swizzle_b, bias=None,
    out_dtype=None, contraction_dim=(), use_fast_accum=False,
):  # fmt: skip
    """[M, K] x [K, N] by ScalingType.TensorWise or RowWise of both matrices."""
    if not _is_known(recipe_a, swizzle_a, recipe_b, swizzle_b, contraction_dim):
        raise _other_recipe(call, recipe_a, recipe_b)
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
        raise _other_recipe(call, recipe_a, recipe_b)
    return scaled_grouped_mm(call, a, b, scale_a[0], scale_b[0], offs, bias, None, out_dtype)
