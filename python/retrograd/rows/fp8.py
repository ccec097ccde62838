"""Rows of the table for the quantisers of torchao's FP8 training of mixtures of experts.

Each line of x, or each line of a group of it, has one scale: the FP8 type's largest number over
the line's largest magnitude. As torchao does, the quotient is made in fp64 and rounded to fp32.
That which is then rounded down to a power of two is made in fp32, and the power is exact, where
torchao's 2^floor(log2 s) is one power too high for some s just below one; of bf16 both are the
same. Results are clamped to the type's numbers before they are cast. Where torchao says nothing we
do: a NaN makes its line NaN, an empty group has the scale of zeros, and rows behind the last group
are multiplied by 0.
"""

import math

import torch

from retrograd.aten_table import row
from retrograd.rows.fp8_products import FP8

_LEAST = 1e-12  # what a counts as at least

F32 = torch.float32


def check(call, x, rank, dtype):
    if x.rank != rank:
        raise call.error(f"an operand of rank {x.rank} has no counterpart; it takes {rank} axes")
    if x.dtype not in (torch.bfloat16, torch.float16, F32):
        raise call.error(f"an operand of {x.dtype} has no counterpart; cast it to float32")
    if dtype not in FP8:
        raise call.error(f"quantising to {dtype} has no counterpart")


def scale_of(call, largest, dtype, power_of_two):
    """Of each line, from its largest magnitude."""
    b = call.b
    largest = b.pointwise("maximum", b.cast(largest, F32), b.full(_LEAST, F32))
    if not power_of_two:
        return exact_quotient(call, torch.finfo(dtype).max, largest)
    scale = b.pointwise("div", b.full(torch.finfo(dtype).max, F32), largest)
    return b.pointwise("floor_pow2", scale)


def exact_quotient(call, number, x):
    """number / x of fp32 x, rounded once: GPUs' divisions in fp32 may be off by a unit or two, and
    of a quotient in fp64 the second rounding changes nothing."""
    b, f64 = call.b, torch.float64
    return b.cast(b.pointwise("div", b.full(number, f64), b.cast(x, f64)), F32)


def quantised(call, x, scale, dtype):
    b, most = call.b, torch.finfo(dtype).max
    y = b.pointwise("mul", b.cast(x, F32), scale)
    y = b.pointwise("minimum", b.pointwise("maximum", y, b.full(-most, F32)), b.full(most, F32))
    return b.cast(y, dtype)


def _of_lines(call, x, axis, dtype, power_of_two):
    """x in FP8, and the scale of each of its lines along the axis, which has extent 1 there."""
    largest = call.b.reduce("amax", call.b.pointwise("abs", x), [axis], keep=True)
    scale = scale_of(call, largest, dtype, power_of_two)
    return quantised(call, x, scale, dtype), scale


@row("torchao.triton_fp8_rowwise_2d_scale_and_cast.default")
def rows(call, x, output_dtype=torch.float8_e4m3fn, round_scales_to_power_of_2=False):
    """[M, K] -> [M, K], [M, 1]."""
    check(call, x, 2, output_dtype)
    return _of_lines(call, x, 1, output_dtype, round_scales_to_power_of_2)


@row("torchao.triton_fp8_colwise_3d_scale_and_cast.default")
def columns_of_experts(
    call, x, output_dtype=torch.float8_e4m3fn, round_scales_to_power_of_2=False
):
    """[E, K, N] -> [E, K, N], [E, 1, N]."""
    check(call, x, 3, output_dtype)
    return _of_lines(call, x, 1, output_dtype, round_scales_to_power_of_2)


@row(
    "torchao.triton_fp8_rowwise_transpose_rhs.default",
    "torchao.triton_fp8_rowwise_transpose_rhs_fused.default",
)
def transposed_experts(
    call, x, output_dtype=torch.float8_e4m3fn, round_scales_to_power_of_2=False
):
    """[E, K, N] -> [E, N, K], [E, K]."""
    check(call, x, 3, output_dtype)
    y, scale = _of_lines(call, x, 2, output_dtype, round_scales_to_power_of_2)
    return call.b.permute(y, [0, 2, 1]), call.b.reshape(scale, scale.shape[:2])


def _group_of(call, places, ends):
    """i32[places]: how many groups end at or before each place; behind the last, their number."""
    b, (groups,) = call.b, ends.shape
    place = b.iota(torch.int32, (places, 1), 0)
    ended = b.pointwise("le", b.reshape(ends, (1, groups)), place, dtype=torch.bool)
    return b.reduce("sum", b.cast(ended, torch.int32), [1])


def _of_groups(call, x, ends, axis, dtype, power_of_two):
    """x [.., S, ..] in FP8, and the scales [.., G, ..] of each group's lines along the axis."""
    check(call, x, 2, dtype)
    b, ends = call.b, call.b.cast(ends, torch.int32)
    scale = scale_of(call, b.segment_amax(x, ends, axis, magnitude=True), dtype, power_of_two)
    of_place = b.index_select(scale, _group_of(call, x.shape[axis], ends), axis)
    return quantised(call, x, of_place, dtype), scale


def _flat(b, x):
    return b.reshape(x, (math.prod(x.shape),))


@row("torchao.triton_fp8_per_group_rowwise_scales.default")
def rows_of_groups(
    call, x, offsets, output_dtype=torch.float8_e4m3fn, round_scales_to_power_of_2=False
):
    """[M, S], the columns in groups -> [M, S], [G * M] group by group."""
    y, scale = _of_groups(call, x, offsets, 1, output_dtype, round_scales_to_power_of_2)
    return y, _flat(call.b, call.b.permute(scale, [1, 0]))


@row("torchao.triton_fp8_per_group_colwise_scales.default")
def columns_of_groups(
    call, x, offsets, output_dtype=torch.float8_e4m3fn, round_scales_to_power_of_2=False
):
    """[S, N], the rows in groups -> [S, N], [G * N] group by group."""
    y, scale = _of_groups(call, x, offsets, 0, output_dtype, round_scales_to_power_of_2)
    return y, _flat(call.b, scale)


@row("torchao.triton_fp8_per_group_colwise_scales_dual.default")
def columns_of_groups_of_two(
    call, x, z, offsets, output_dtype=torch.float8_e4m3fn, round_scales_to_power_of_2=False
):
    """The same of two tensors with the same groups."""
    more = (offsets, output_dtype, round_scales_to_power_of_2)
    return *columns_of_groups(call, x, *more), *columns_of_groups(call, z, *more)
