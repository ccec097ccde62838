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


@row("aten._scaled_mm.default")
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
