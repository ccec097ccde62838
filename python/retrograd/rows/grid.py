"""The gradient of sampling an image at the points of a grid.

Each point meets two pixels along each axis (or one, the nearest); dx adds the weighted gradient to
each pixel met, and the gradient of a point is how the weights of its pixels change with it.
"""

import dataclasses

import torch

from retrograd import dtypes
from retrograd.aten_table import compare, row
from retrograd.builder import Ref
from retrograd.rows.rounding import round_

_BILINEAR, _NEAREST = 0, 1
_ZEROS, _BORDER = 0, 1


@dataclasses.dataclass(frozen=True)
class _Points:
    """Where the points lie along one axis, counted in pixels, and how that changes with the grid's
    number there."""

    at: Ref
    slope: Ref


def _points(call, grid, extent, padding, align_corners):
    b, dtype = call.b, grid.dtype
    full = lambda value: b.full(value, dtype)  # noqa: E731
    factor = (extent - 1 if align_corners else extent) / 2
    middle = (extent - 1) / 2
    at = b.pointwise("add", b.pointwise("mul", grid, full(factor)), full(middle))
    slope = b.full(factor, dtype, grid.shape)
    if padding == _ZEROS:
        return _Points(at, slope)
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
    turns = b.pointwise("floor", b.pointwise("div", distance, full(span)))
    odd = compare(call, "ne", b.pointwise("fmod", turns, full(2)), 0)
    back = b.pointwise("where", odd, b.pointwise("sub", full(span), rest), rest)
    turned = b.pointwise("ne", odd, negative, dtype=torch.bool)
    return b.pointwise("add", back, full(low)), b.pointwise("where", turned, full(-1), full(1))


class _Image:
    """Pixels as rows of their channels, and the gradient that comes to each point."""

    def __init__(self, call, dy, x):
        b = call.b
        self.call, self.b = call, b
        self.images, self.channels, self.height, self.width = x.shape
        self.rows = self._as_rows(x)
        self.dy = self._as_rows(dy)
        self.dx = b.full(0, x.dtype, self.rows.shape)

    def _as_rows(self, x):
        x = self.b.permute(x, (0, 2, 3, 1))
        return self.b.reshape(x, (x.shape[0] * x.shape[1] * x.shape[2], x.shape[3]))

    def row_of(self, x, y):
        """The row of the pixel (x, y) for each point; the number of rows where it is outside."""
        b, call, number = self.b, self.call, torch.int64
        inside = b.pointwise("logical_and", compare(call, "ge", x, 0),
                             compare(call, "lt", x, self.width))  # fmt: skip
        rows = b.pointwise("logical_and", compare(call, "ge", y, 0),
                           compare(call, "lt", y, self.height))  # fmt: skip
        inside = b.pointwise("logical_and", inside, rows)
        image = b.iota(number, (self.images, 1, 1), 0, 0, self.height * self.width)
        line = b.pointwise("mul", b.cast(y, number), b.full(self.width, number))
        place = b.pointwise("add", b.pointwise("add", image, line), b.cast(x, number))
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
        shape = (self.images, self.height, self.width, self.channels)
        return self.b.permute(self.b.reshape(self.dx, shape), (0, 3, 1, 2))


def _corners(b, points):
    """[(pixel, weight, how the weight changes)] of both pixels along one axis."""
    first = b.pointwise("floor", points.at)
    right = b.pointwise("sub", points.at, first)
    left = b.pointwise("sub", b.full(1, right.dtype), right)
    second = b.pointwise("add", first, b.full(1, first.dtype))
    return [(first, left, b.pointwise("neg", points.slope)), (second, right, points.slope)]


@row("aten.grid_sampler_2d_backward.default")
def grid_sampler_backward(call, dy, x, grid, interpolation, padding, align_corners, mask):
    if interpolation not in (_BILINEAR, _NEAREST):
        raise call.error("bicubic sampling has no counterpart; use bilinear or nearest")
    b, dtypes_ = call.b, (x.dtype, grid.dtype)
    compute = dtypes.compute_dtype(x.dtype)
    dy, x, grid = (b.cast(v, compute) for v in (dy, x, grid))
    image, shape = _Image(call, dy, x), grid.shape[:-1]
    along = [
        _points(call, b.reshape(b.slice(grid, 3, i, i + 1), shape), n, padding, align_corners)
        for i, n in enumerate((x.shape[3], x.shape[2]))
    ]
    if interpolation == _NEAREST:
        place = image.row_of(*(round_(call, points.at) for points in along))
        image.add(place, b.full(1, compute, shape))
        return b.cast(image.gradient(), dtypes_[0]), b.full(0, dtypes_[1], grid.shape)
    slopes = [b.full(0, compute, shape)] * 2
    for left, x_weight, x_slope in _corners(b, along[0]):
        for top, y_weight, y_slope in _corners(b, along[1]):
            place = image.row_of(left, top)
            image.add(place, b.pointwise("mul", x_weight, y_weight))
            product = image.products(place, shape)
            for i, change in enumerate(((x_slope, y_weight), (y_slope, x_weight))):
                change = b.pointwise("mul", product, b.pointwise("mul", *change))
                slopes[i] = b.pointwise("add", slopes[i], change)
    slopes = [b.reshape(s, (*shape, 1)) for s in slopes]
    return b.cast(image.gradient(), dtypes_[0]), b.cast(b.cat(slopes, 3), dtypes_[1])
