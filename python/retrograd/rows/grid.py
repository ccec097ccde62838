"""The gradient of sampling an image at the points of a grid.

Each point meets two pixels along each axis (or one, the nearest; or four, by cubic pieces); dx adds
the weighted gradient to each pixel met, and the gradient of a point is how the weights of its
pixels change with it. Axes are counted as the grid's numbers are, the fastest of the image first.
"""

import dataclasses
import functools
import itertools
import math

import torch

from retrograd import dtypes
from retrograd.aten_table import compare, row
from retrograd.builder import Ref
from retrograd.rows.math import Formula
from retrograd.rows.rounding import round_

_NEAREST, _CUBIC = 1, 2
_ZEROS, _BORDER = 0, 1
_SHARPNESS = -0.75  # of the cubic pieces


@dataclasses.dataclass(frozen=True)
class _Points:
    """Where the points lie along one axis, counted in pixels, and how that changes with the grid's
    number there."""

    at: Ref
    slope: Ref


def _points(call, grid, extent, align_corners):
    b, dtype = call.b, grid.dtype
    factor = (extent - 1 if align_corners else extent) / 2
    middle = (extent - 1) / 2
    at = b.pointwise("add", b.pointwise("mul", grid, b.full(factor, dtype)), b.full(middle, dtype))
    return _Points(at, b.full(factor, dtype, grid.shape))


def _padded(call, points, extent, padding, align_corners):
    """The points where the image's padding puts them."""
    b, at, slope = call.b, points.at, points.slope
    full = lambda value: b.full(value, at.dtype)  # noqa: E731
    if padding == _ZEROS:
        return points
    if padding != _BORDER:
        at, sign = _reflected(call, at, extent, align_corners)
        slope = b.pointwise("mul", slope, sign)
    within = b.pointwise("logical_and", compare(call, "gt", at, 0),
                         compare(call, "lt", at, extent - 1))  # fmt: skip
    at = b.pointwise("minimum", b.pointwise("maximum", at, full(0)), full(extent - 1))
    return _Points(at, b.pointwise("where", within, slope, full(0)))


def _reflected(call, at, extent, align_corners):
    """(at folded back at the centres or edges of the outermost pixels, 1 or -1)."""
    b, dtype = call.b, at.dtype
    full = lambda value: b.full(value, dtype)  # noqa: E731
    low, span = (0.0, extent - 1) if align_corners else (-0.5, extent)
    if not span:
        return b.full(0, dtype, at.shape), full(0)
    from_low = b.pointwise("sub", at, full(low))
    negative = compare(call, "lt", from_low, 0)
    distance = b.pointwise("abs", from_low)
    rest = b.pointwise("fmod", distance, full(span))
    # Rounded, not cut: a quotient of floats may lie a little below its whole number.
    quotient = b.pointwise("div", b.pointwise("sub", distance, rest), full(span))
    turns = b.pointwise("floor", b.pointwise("add", quotient, full(0.5)))
    odd = compare(call, "ne", b.pointwise("fmod", turns, full(2)), 0)
    back = b.pointwise("where", odd, b.pointwise("sub", full(span), rest), rest)
    turned = b.pointwise("ne", odd, negative, dtype=torch.bool)
    return b.pointwise("add", back, full(low)), b.pointwise("where", turned, full(-1), full(1))


class _Image:
    """Pixels as rows of their channels, and the gradient that comes to each point."""

    def __init__(self, call, dy, x):
        b = call.b
        self.call, self.b = call, b
        self.images, self.channels, *self.extents = x.shape
        self.rows = self._as_rows(x)
        self.dy = self._as_rows(dy)
        self.dx = b.full(0, x.dtype, self.rows.shape)

    def _as_rows(self, x):
        x = self.b.permute(x, (0, *range(2, x.rank), 1))
        return self.b.reshape(x, (math.prod(x.shape[:-1]), x.shape[-1]))

    def row_of(self, pixel):
        """The row of a pixel, given axis by axis, for each point; the number of rows where it is
        outside."""
        b, call, number = self.b, self.call, torch.int64
        inside = line = None
        for at, extent in zip(reversed(pixel), self.extents, strict=True):
            low, high = compare(call, "ge", at, 0), compare(call, "lt", at, extent)
            here = b.pointwise("logical_and", low, high)
            inside = here if inside is None else b.pointwise("logical_and", inside, here)
            at = b.cast(at, number)
            if line is not None:
                at = b.pointwise("add", b.pointwise("mul", line, b.full(extent, number)), at)
            line = at
        image = b.iota(number, (self.images, *[1] * len(pixel)), 0, 0, math.prod(self.extents))
        place = b.pointwise("add", image, line)
        place = b.pointwise("where", inside, place, b.full(self.rows.shape[0], number))
        return b.reshape(place, (self.dy.shape[0],))

    def add(self, place, weight):
        share = self.b.pointwise("mul", self.dy, self.b.reshape(weight, (self.dy.shape[0], 1)))
        self.dx = self.b.index_add(self.dx, place, share, 0)

    def products(self, place, shape):
        """The product of each point's pixel and gradient, summed over the channels."""
        value = self.b.index_select(self.rows, place, 0)
        return self.b.reshape(self.b.reduce("sum", self.b.pointwise("mul", value, self.dy), [1]), shape)

    def gradient(self):
        x = self.b.reshape(self.dx, (self.images, *self.extents, self.channels))
        return self.b.permute(x, (0, x.rank - 1, *range(1, x.rank - 1)))


def _corners(b, points):
    """[(pixel, weight, how the weight changes)] of both pixels along one axis."""
    first = b.pointwise("floor", points.at)
    right = b.pointwise("sub", points.at, first)
    left = b.pointwise("sub", b.full(1, right.dtype), right)
    second = b.pointwise("add", first, b.full(1, first.dtype))
    return [(first, left, b.pointwise("neg", points.slope)), (second, right, points.slope)]


def _cubic_taps(call, points, *padding):
    """The same of the four pixels that a cubic piece meets, each where the padding puts it."""
    b = call.b
    f = Formula(b, points.at.dtype)
    first = b.pointwise("floor", points.at)
    right = f.sub(points.at, first)
    left = f.sub(1, right)
    taps = []
    for i, (distance, weight, sign) in enumerate((
        (f.add(right, 1), _far, 1), (right, _near, 1), (left, _near, -1), (f.add(left, 1), _far, -1),
    )):  # fmt: skip
        pixel = _padded(call, _Points(f.add(first, i - 1), points.slope), *padding).at
        value, change = weight(f, distance)
        taps.append((pixel, value, f.mul(points.slope, f.mul(change, sign))))
    return taps


def _near(f, x):
    """(weight of a pixel less than 1 away, its derivative)"""
    a = _SHARPNESS
    value = f.fma(f.mul(x, x), f.sub(f.mul(x, a + 2), a + 3), 1)
    return value, f.mul(x, f.sub(f.mul(x, 3 * (a + 2)), 2 * (a + 3)))


def _far(f, x):
    """The same of one from 1 to 2 away."""
    a = _SHARPNESS
    value = f.fma(f.fma(f.fma(x, a, -5 * a), x, 8 * a), x, -4 * a)
    return value, f.fma(f.fma(x, 3 * a, -10 * a), x, 8 * a)


@row("aten.grid_sampler_2d_backward.default", "aten.grid_sampler_3d_backward.default")
def grid_sampler_backward(call, dy, x, grid, interpolation, padding, align_corners, mask):
    b, dtypes_ = call.b, (x.dtype, grid.dtype)
    compute = dtypes.compute_dtype(x.dtype)
    dy, x, grid = (b.cast(v, compute) for v in (dy, x, grid))
    image, shape, dims = _Image(call, dy, x), grid.shape[:-1], x.rank - 2
    extents = x.shape[:1:-1]
    along = [
        _points(call, b.reshape(b.slice(grid, dims + 1, i, i + 1), shape), n, align_corners)
        for i, n in enumerate(extents)
    ]
    paddings = [(n, padding, align_corners) for n in extents]
    if interpolation == _CUBIC:
        taps = [_cubic_taps(call, points, *p) for points, p in zip(along, paddings)]
    else:
        along = [_padded(call, points, *p) for points, p in zip(along, paddings)]
        taps = [_corners(b, points) for points in along]
    if interpolation == _NEAREST:
        place = image.row_of([round_(call, points.at) for points in along])
        image.add(place, b.full(1, compute, shape))
        return b.cast(image.gradient(), dtypes_[0]), b.full(0, dtypes_[1], grid.shape)
    slopes = _add_all(image, taps, shape, compute)
    slopes = [b.reshape(s, (*shape, 1)) for s in slopes]
    return b.cast(image.gradient(), dtypes_[0]), b.cast(b.cat(slopes, dims + 1), dtypes_[1])


def _add_all(image, taps, shape, compute):
    """Adds the weighted gradient to each pixel met; returns the points' gradients, axis by axis."""
    b = image.b
    slopes = [b.full(0, compute, shape)] * len(taps)
    for met in itertools.product(*taps):
        pixel, weights, changes = zip(*met)
        place = image.row_of(pixel)
        image.add(place, _product(b, weights))
        product = image.products(place, shape)
        for i, change in enumerate(changes):
            factors = (change, *weights[:i], *weights[i + 1 :])
            share = b.pointwise("mul", product, _product(b, factors))
            slopes[i] = b.pointwise("add", slopes[i], share)
    return slopes


def _product(b, factors):
    return functools.reduce(lambda x, y: b.pointwise("mul", x, y), factors)
