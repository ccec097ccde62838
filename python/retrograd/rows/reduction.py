"""Rows of the table for reductions and scans."""

import math

import torch

from retrograd import dtypes
from retrograd.aten_table import arithmetic, axes_of, axis_of, compare, row, truth


def _summand(call, x, dtype):
    if dtype is None and not x.dtype.is_floating_point:
        dtype = torch.int64
    return call.b.cast(x, dtype or x.dtype)


@row("aten.sum.dim_IntList", "aten.sum.default")
def sum_(call, x, axes=None, keepdim=False, dtype=None):
    return call.b.reduce("sum", _summand(call, x, dtype), axes_of(x, axes), keepdim)


@row("aten.mean.dim", "aten.mean.default")
def mean(call, x, axes=None, keepdim=False, dtype=None):
    """Sum and division in the compute type, rounded once."""
    b, dtype, axes = call.b, dtype or x.dtype, axes_of(x, axes)
    count = 1
    for axis in axes:
        count *= x.shape[axis]
    total = b.reduce("sum", b.cast(x, dtypes.compute_dtype(dtype)), axes, keepdim)
    return b.cast(arithmetic(call, "div", total, count), dtype)


@row("aten.var_mean.correction")
def var_mean(call, x, axes=None, correction=1, keepdim=False):
    """Two passes: the mean, then the mean of the squared distances from it."""
    b, axes = call.b, axes_of(x, axes)
    count = 1
    for axis in axes:
        count *= x.shape[axis]
    y = b.cast(x, dtypes.compute_dtype(x.dtype))
    centre = arithmetic(call, "div", b.reduce("sum", y, axes, True), count)
    distance = b.pointwise("sub", y, centre)
    squares = b.reduce("sum", b.pointwise("mul", distance, distance), axes, keepdim)
    correction = 1 if correction is None else correction
    variance = arithmetic(call, "div", squares, max(count - correction, 0))
    kept = [1 if i in axes else n for i, n in enumerate(x.shape) if keepdim or i not in axes]
    return b.cast(variance, x.dtype), b.cast(b.reshape(centre, kept), x.dtype)


@row("aten.var.correction")
def var(call, x, axes=None, correction=1, keepdim=False):
    return var_mean(call, x, axes, correction, keepdim)[0]


@row("aten.amax.default")
def amax(call, x, axes=None, keepdim=False):
    return extreme(call, "amax", x, axes_of(x, axes), keepdim)


@row("aten.amin.default")
def amin(call, x, axes=None, keepdim=False):
    return extreme(call, "amin", x, axes_of(x, axes), keepdim)


def extreme(call, op, x, axes, keepdim=False):
    """amax or amin; of booleans, whether any or all are true."""
    b = call.b
    if x.dtype != torch.bool:
        return b.reduce(op, x, axes, keepdim)
    return b.cast(b.reduce(op, b.cast(x, torch.int32), axes, keepdim), torch.bool)


@row("aten.cumsum.default")
def cumsum(call, x, axis, dtype=None):
    x = _summand(call, x, dtype)
    return call.b.scan("cumsum", x, axis_of(x, axis)) if x.rank else x


def _maximum(call, op, x, axis, keepdim):
    """(the largest or smallest value, the first place that has it or a NaN)."""
    b = call.b
    if x.rank == 0:
        return x, b.full(0, torch.int64)
    value = extreme(call, op, x, [axis], True)
    here = compare(call, "eq", x, value)
    if x.dtype.is_floating_point:
        here = b.pointwise("logical_or", here, compare(call, "ne", x, x))
    extents = [n if a == axis else 1 for a, n in enumerate(x.shape)]
    place = b.iota(torch.int64, extents, axis)
    place = b.pointwise("where", here, place, b.full(x.shape[axis], torch.int64))
    place = b.reduce("amin", place, [axis], True)
    kept = [1 if a == axis else n for a, n in enumerate(x.shape) if keepdim or a != axis]
    return b.reshape(value, kept), b.reshape(place, kept)


@row("aten.max.dim")
def max_dim(call, x, axis, keepdim=False):
    return _maximum(call, "amax", x, axis_of(x, axis), keepdim)


@row("aten.min.dim")
def min_dim(call, x, axis, keepdim=False):
    return _maximum(call, "amin", x, axis_of(x, axis), keepdim)


@row("aten.max.default")
def max_(call, x):
    return extreme(call, "amax", x, axes_of(x, None))


@row("aten.min.default")
def min_(call, x):
    return extreme(call, "amin", x, axes_of(x, None))


def _place_of(call, op, x, axis, keepdim):
    if axis is None:
        x, axis = call.b.reshape(x, (math.prod(x.shape),)), 0
    return call.b.reshape(_maximum(call, op, x, axis_of(x, axis), keepdim)[1], call.shape)


@row("aten.argmax.default")
def argmax(call, x, axis=None, keepdim=False):
    return _place_of(call, "amax", x, axis, keepdim)


@row("aten.argmin.default")
def argmin(call, x, axis=None, keepdim=False):
    return _place_of(call, "amin", x, axis, keepdim)


@row("aten.any.default", "aten.any.dim", "aten.any.dims")
def any_(call, x, axes=None, keepdim=False):
    if not math.prod(x.shape):
        return call.b.full(0, torch.bool, call.shape)
    return extreme(call, "amax", truth(call, x), axes_of(x, axes), keepdim)


@row("aten.bucketize.Tensor")
def bucketize(call, x, boundaries, out_int32=False, right=False):
    """How many of the ascending boundaries are below x (or not above it)."""
    b, dtype = call.b, torch.int32 if out_int32 else torch.int64
    x = b.reshape(x, (*x.shape, 1))
    behind = b.pointwise("logical_not", compare(call, "gt" if right else "ge", boundaries, x))
    return b.reduce("sum", b.cast(behind, dtype), [x.rank - 1])


# --- products and running sums of exponentials: log2(n) steps of pairs ----------------------------
def _product(b, x, axis):
    """The product along the axis, which stays with extent 1."""
    extent = x.shape[axis]
    if not extent:
        return b.full(1, x.dtype, [1 if a == axis else n for a, n in enumerate(x.shape)])
    while extent > 1:
        half = -(-extent // 2)
        second = b.slice(x, axis, half, extent)
        second = _shifted(b, second, axis, 0, 2 * half - extent, 1)
        x = b.pointwise("mul", b.slice(x, axis, 0, half), second)
        extent = half
    return x


def _shifted(b, x, axis, low, high, fill):
    """That many of the fill before and behind x along the axis."""
    before, after = ([n if a == axis else 0 for a in range(x.rank)] for n in (low, high))
    return b.pad(x, before, after, fill)


def _scanned(b, x, axis, joined, neutral):
    """At each place of the axis all up to it joined, by steps that double how many."""
    step = 1
    while x.rank and step < x.shape[axis]:
        before = b.slice(x, axis, 0, x.shape[axis] - step)
        x = joined(_shifted(b, before, axis, step, 0, neutral), x)
        step *= 2
    return x


def _factors(call, x, dtype):
    """(the factors in the type to multiply in, the result's type)"""
    x = _summand(call, x, dtype)
    compute = torch.int32 if x.dtype == torch.bool else dtypes.compute_dtype(x.dtype)
    return call.b.cast(x, compute), x.dtype


@row("aten.prod.default")
def prod(call, x, dtype=None):
    x, dtype = _factors(call, x, dtype)
    line = call.b.reshape(x, (math.prod(x.shape),))
    return call.b.cast(call.b.reshape(_product(call.b, line, 0), ()), dtype)


@row("aten.prod.dim_int")
def prod_dim(call, x, axis, keepdim=False, dtype=None):
    x, dtype = _factors(call, x, dtype)
    product = _product(call.b, x, axis_of(x, axis)) if x.rank else x
    return call.b.cast(call.b.reshape(product, call.shape), dtype)


@row("aten.cumprod.default")
def cumprod(call, x, axis, dtype=None):
    x, dtype = _factors(call, x, dtype)
    product = call.b.scan("cumprod", x, axis_of(x, axis)) if x.rank else x
    return call.b.cast(product, dtype)


@row("aten.logcumsumexp.default")
def logcumsumexp(call, x, axis):
    b, dtype = call.b, x.dtype
    x = b.cast(x, dtypes.compute_dtype(dtype))
    total = _scanned(b, x, axis_of(x, axis), lambda *two: _logaddexp(call, *two), -math.inf)
    return b.cast(total, dtype)


def _logaddexp(call, x, y):
    """The larger one, and log1p(e^-distance); of equal infinities, which have no distance, one."""
    b = call.b
    large = b.pointwise("maximum", x, y)
    distance = b.pointwise("abs", b.pointwise("sub", x, y))
    more = b.pointwise("log1p", b.pointwise("exp", b.pointwise("neg", distance)))
    endless = compare(call, "eq", b.pointwise("abs", large), math.inf)
    return b.pointwise("where", endless, large, b.pointwise("add", large, more))
