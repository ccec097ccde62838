"""Rows of the table that round, and those for quotients and remainders of whole numbers.

Integers are divided in float64, whose quotient is off by less than one part in 2^53; the same
division of what is left over then mends quotients of more bits than that.
"""

import torch

from retrograd import dtypes
from retrograd.aten_table import arithmetic, common_dtype, compare, convert, div, row


def _whole(x):
    return not x.dtype.is_floating_point


@row("aten.floor.default")
def floor(call, x):
    return x if _whole(x) else call.b.pointwise("floor", x)


@row("aten.ceil.default")
def ceil(call, x):
    b = call.b
    return x if _whole(x) else b.pointwise("neg", b.pointwise("floor", b.pointwise("neg", x)))


@row("aten.trunc.default")
def trunc(call, x):
    return x if _whole(x) else _truncated(call.b, x)


def _truncated(b, x):
    size = b.pointwise("floor", b.pointwise("abs", x))
    return b.pointwise("mul", b.pointwise("sign", x), size)


@row("aten.round.default")
def round_(call, x):
    """To the nearest whole number, the even one of two: up from the floor where more than a half is
    left, or a half above an odd number."""
    if _whole(x):
        return x
    b = call.b
    below = b.pointwise("floor", x)
    left = b.pointwise("sub", x, below)
    half_of_below = b.pointwise("mul", below, b.full(0.5, x.dtype))
    odd = compare(call, "ne", half_of_below, b.pointwise("floor", half_of_below))
    tie = b.pointwise("logical_and", compare(call, "eq", left, 0.5), odd)
    up = b.pointwise("logical_or", compare(call, "gt", left, 0.5), tie)
    return b.pointwise("add", below, b.cast(up, x.dtype))


# --- quotients -----------------------------------------------------------------------------------
def quotient(call, x, y, mode):
    """x / y rounded by the mode, "floor" or "trunc"; operands as `arithmetic` takes them."""
    b, dtype = call.b, common_dtype(x, y)
    compute = dtypes.compute_dtype(dtype)
    x, y = convert(b, x, compute), convert(b, y, compute)
    if dtype.is_floating_point:
        whole = _floor_quotient(call, x, y) if mode == "floor" else _truncated(b, div(call, x, y))
        return b.cast(whole, dtype)
    whole = _whole_quotient(b, x, y, mode)
    if dtype != torch.int64:
        return whole
    rest = b.pointwise("sub", x, b.pointwise("mul", whole, y))
    return b.pointwise("add", whole, _whole_quotient(b, rest, y, mode))


def _floor_quotient(call, x, y):
    """The floor of x / y as PyTorch has it: from the remainder, which is exact."""
    b = call.b
    rest = remainder(call, x, y)
    exact = b.pointwise("div", b.pointwise("sub", x, rest), y)
    below = b.pointwise("floor", exact)
    left = b.pointwise("sub", exact, below)
    up = b.cast(compare(call, "gt", left, 0.5), x.dtype)
    return b.pointwise("where", compare(call, "eq", y, 0), b.pointwise("div", x, y),
                       b.pointwise("add", below, up))  # fmt: skip


def _whole_quotient(b, x, y, mode):
    ratio = b.pointwise("div", b.cast(x, torch.float64), b.cast(y, torch.float64))
    return b.cast(b.pointwise("floor", ratio) if mode == "floor" else _truncated(b, ratio), x.dtype)


@row("aten.div.Tensor_mode", "aten.div.Scalar_mode")
def div_mode(call, x, y, rounding_mode=None):
    if rounding_mode is None:
        return div(call, x, y)
    return quotient(call, x, y, rounding_mode)


@row("aten.floor_divide.default", "aten.floor_divide.Scalar")
def floor_divide(call, x, y):
    return quotient(call, x, y, "floor")


# --- remainders ----------------------------------------------------------------------------------
@row("aten.fmod.Tensor", "aten.fmod.Scalar")
def fmod(call, x, y):
    """What is left of x, with its sign."""
    return _left_over(call, x, y, "trunc")


@row("aten.remainder.Tensor", "aten.remainder.Scalar", "aten.remainder.Scalar_Tensor")
def remainder(call, x, y):
    """What is left of x, with the sign of y."""
    dtype = common_dtype(x, y)
    if not dtype.is_floating_point:
        return _left_over(call, x, y, "floor")
    b = call.b
    x, y = convert(b, x, dtype), convert(b, y, dtype)
    left = b.pointwise("fmod", x, y)
    other_sign = b.pointwise("ne", compare(call, "lt", left, 0), compare(call, "lt", y, 0))
    wraps = b.pointwise("logical_and", compare(call, "ne", left, 0), other_sign)
    return b.pointwise("where", wraps, b.pointwise("add", left, y), left)


@row("aten.bitwise_and.Scalar")
def last_bits(call, x, mask):
    """The remainder of x by mask + 1, a power of two."""
    if x.dtype == torch.bool or mask < 0 or mask & (mask + 1):
        raise call.error(f"bitwise operations on integers have no counterpart; & {mask} is no power of "
                         "two less one, which would be a remainder")  # fmt: skip
    return _left_over(call, x, mask + 1, "floor")


def _left_over(call, x, y, mode):
    dtype = common_dtype(x, y)
    if dtype.is_floating_point:
        return arithmetic(call, "fmod", x, y)
    b = call.b
    x, y = convert(b, x, dtype), convert(b, y, dtype)
    return b.pointwise("sub", x, b.pointwise("mul", quotient(call, x, y, mode), y))
