"""Rows of the table for the gradients of pooling.

Every input pixel gathers from the windows that hold it. Along one axis pixel h lies in the windows
p = (h + padding) // stride - j for j = 0, 1, .., at the place (h + padding) % stride + j stride of
each; so with every window repeated for the `stride` pixels that begin it, the j-th windows of all
pixels are a part of that, moved by j strides. All of it is views, which cost nothing.
"""

import dataclasses
import itertools
import math

import torch

from retrograd import dtypes
from retrograd.aten_table import row
from retrograd.builder import Ref


# Of the sum that a pixel of a max pool is: windows of 13 x 13 by steps of one pixel have 169, as
# pyramids of them do. Of more, winners are sorted by pixel.
_MOST_TERMS = 200


@dataclasses.dataclass(frozen=True)
class _Axis:
    axis: int  # of the tensors, of which the last ones are spatial
    pixels: int
    windows: int
    kernel: int
    stride: int
    padding: int
    dilation: int = 1

    @property
    def reach(self):
        """From the first pixel of a window to behind its last."""
        return (self.kernel - 1) * self.dilation + 1

    @property
    def turns(self):
        """How many windows may hold a pixel: the values of j."""
        return -(-self.reach // self.stride)

    def start(self, turn):
        """Where pixel 0 lies among the repeated windows."""
        return self.padding - turn * self.stride


def _axes(x, dy, kernel, stride, padding, dilation=(1,)):
    first = x.rank - len(kernel)
    stride = stride or kernel
    spread = [list(v) * (len(kernel) if len(v) == 1 else 1) for v in (stride, padding, dilation)]
    return [
        _Axis(first + d, x.shape[first + d], dy.shape[first + d], kernel[d], *numbers)
        for d, numbers in enumerate(zip(*spread, strict=True))
    ]


def cut(b, x, axis, start, length, fill):
    """x[.., start : start + length, ..], `fill` outside of x."""
    extent = x.shape[axis]
    low = min(max(0, -start), length)
    begin = min(max(0, start), extent)
    end = max(begin, min(extent, start + length))
    x = b.slice(x, axis, begin, end)
    before = [low if a == axis else 0 for a in range(x.rank)]
    after = [length - low - (end - begin) if a == axis else 0 for a in range(x.rank)]
    return b.pad(x, before, after, fill)


def _of_turn(b, x, axis, turn, fill):
    """For every pixel along the axis what x holds for its turn-th window, `fill` without one."""
    at = axis.axis
    inside = min(axis.stride, axis.reach - turn * axis.stride)
    shape = list(x.shape)
    x = b.reshape(x, (*shape[: at + 1], 1, *shape[at + 1 :]))
    x = b.expand(x, (*shape[: at + 1], inside, *shape[at + 1 :]))
    more = [axis.stride - inside if a == at + 1 else 0 for a in range(x.rank)]
    x = b.pad(x, [0] * x.rank, more, fill)
    shape[at] *= axis.stride
    return cut(b, b.reshape(x, shape), at, axis.start(turn), axis.pixels, fill)


def _of_turns(b, x, axes, turns, fill):
    for axis, turn in zip(axes, turns, strict=True):
        x = _of_turn(b, x, axis, turn, fill)
    return x


def _turns(axis):
    """The turns of windows that hold some pixel: of dilated ones not all do."""
    places = range(axis.stride)
    return [
        turn
        for turn in range(axis.turns)
        if any((turn * axis.stride + place) % axis.dilation == 0 for place in places)
    ]


def _all_turns(axes):
    return itertools.product(*map(_turns, axes))


def _added(b, terms):
    total = None
    for term in terms:
        total = term if total is None else b.pointwise("add", total, term)
    return total


# --- maximum -------------------------------------------------------------------------------------
def _pixel_numbers(b, rank, axes):
    """The number of each input pixel, counted over the spatial axes in order, as int64."""
    total, step = None, math.prod(axis.pixels for axis in axes)
    for axis in axes:
        step //= axis.pixels
        extents = [axis.pixels if a == axis.axis else 1 for a in range(rank)]
        numbers = b.iota(torch.int64, extents, axis.axis, 0, step)
        total = numbers if total is None else b.pointwise("add", total, numbers)
    return total


def _places(b, rank, axes, turns):
    """The number that each pixel's place has in its window of these turns, as int32."""
    total, step = None, math.prod(axis.kernel for axis in axes)
    for axis, turn in zip(axes, turns, strict=True):
        step //= axis.kernel
        repeats = -(-(axis.padding + axis.pixels) // axis.stride)
        line = [axis.stride if a == axis.axis else 1 for a in range(rank)]
        places = b.iota(torch.int32, line, axis.axis, turn * axis.stride * step, step)
        places = b.expand(places, (*line[: axis.axis], repeats, *line[axis.axis :]))
        line[axis.axis] *= repeats
        places = cut(b, b.reshape(places, line), axis.axis, axis.padding, axis.pixels, 0)
        total = places if total is None else b.pointwise("add", total, places)
    return total


@row("prims._low_memory_max_pool_offsets_to_indices.default")
def max_pool_offsets_to_indices(call, offsets, kernel, input_size, stride, padding, dilation):
    """From the number of the winner's place in its window to the number of its pixel."""
    b, rank = call.b, offsets.rank
    first = rank - len(kernel)
    rest = b.cast(offsets, torch.float32)  # exact: offsets are small
    total, step, size = None, math.prod(kernel), math.prod(input_size)
    for d, k in enumerate(kernel):
        step, size = step // k, size // input_size[d]
        half = b.pointwise("add", rest, b.full(0.5, rest.dtype))
        place = b.pointwise("floor", b.pointwise("div", half, b.full(step, rest.dtype)))
        rest = b.pointwise("sub", rest, b.pointwise("mul", place, b.full(step, rest.dtype)))
        extents = [offsets.shape[a] if a == first + d else 1 for a in range(rank)]
        begin = b.iota(torch.int64, extents, first + d, -padding[d], stride[d])
        place = b.pointwise("mul", b.cast(place, torch.int64), b.full(dilation[d], torch.int64))
        pixel = b.pointwise("add", place, begin)
        pixel = b.pointwise("mul", pixel, b.full(size, torch.int64))
        total = pixel if total is None else b.pointwise("add", total, pixel)
    b.pool_offsets[total] = offsets
    return total


@row(
    "aten.max_pool2d_with_indices_backward.default", "aten.max_pool3d_with_indices_backward.default"
)
def max_pool_backward(call, dy, x, kernel, stride, padding, dilation, ceil_mode, index):
    """The sum of the gradients of those windows whose winner a pixel is, rounded once, unless these
    are very many. Where the winners' places in their windows are known they are compared, which are
    numbers of 8 bits."""
    b, dims = call.b, 2 if "2d" in call.name else 3
    kernel = list(kernel) * (dims if len(kernel) == 1 else 1)
    axes = _axes(x, dy, kernel, stride, padding, dilation)
    if math.prod(len(_turns(axis)) for axis in axes) > _MOST_TERMS:
        return _to_winners(call, dy, x, index, dims)
    offsets = b.pool_offsets.get(index)
    by_place = offsets is not None and all(axis.dilation == 1 for axis in axes)
    compute = dtypes.compute_dtype(dy.dtype)
    zero = b.full(0, dy.dtype)

    def term(turns):
        gradient = _of_turns(b, dy, axes, turns, 0)
        winner = _of_turns(b, offsets if by_place else index, axes, turns, -1)
        if by_place:
            winner, mine = b.cast(winner, torch.int32), _places(b, x.rank, axes, turns)
        else:
            mine = _pixel_numbers(b, x.rank, axes)
        won = b.pointwise("eq", winner, mine, dtype=torch.bool)
        return b.cast(b.pointwise("where", won, gradient, zero), compute)

    return b.cast(_added(b, map(term, _all_turns(axes))), dy.dtype)


def _taps(b, x, axes, fill):
    """For each place in a window, in order, what x holds there for every window; `fill` outside."""
    for places in itertools.product(*(range(axis.kernel) for axis in axes)):
        tap = x
        for axis, place in zip(axes, places, strict=True):
            start = place * axis.dilation - axis.padding
            reach = (axis.windows - 1) * axis.stride + 1
            tap = cut(b, tap, axis.axis, start, reach, fill)
            tap = b.slice(tap, axis.axis, 0, reach, axis.stride)
        yield tap


@row("prims._low_memory_max_pool_with_offsets.default")
def max_pool_with_offsets(call, x, kernel, stride, padding, dilation, ceil_mode):
    """(maximum, the place in its window of the first that has it, or of the last NaN)."""
    b, shape = call.b, call.shapes[0]
    first = x.rank - len(kernel)
    axes = [
        _Axis(first + d, x.shape[first + d], shape[first + d], *numbers)
        for d, numbers in enumerate(zip(kernel, stride, padding, dilation, strict=True))
    ]
    low = float("-inf") if x.dtype.is_floating_point else torch.iinfo(x.dtype).min
    best = place = None
    for number, tap in enumerate(_taps(b, x, axes, low)):
        if best is None:
            best, place = tap, b.full(0, torch.int8, shape)
            continue
        above = b.pointwise("gt", tap, best, dtype=torch.bool)
        is_nan = b.pointwise("ne", tap, tap, dtype=torch.bool)
        taken = b.pointwise("logical_or", above, is_nan)
        best = b.pointwise("where", taken, tap, best)
        place = b.pointwise("where", taken, b.full(number, torch.int8), place)
    return best, place


# --- average -------------------------------------------------------------------------------------
def _counted(b, rank, axis, dtype, include_pad):
    """How many pixels along the axis each window is divided by."""

    def ends(start):
        extents = [axis.windows if a == axis.axis else 1 for a in range(rank)]
        return b.iota(dtype, extents, axis.axis, start, axis.stride)

    begin, end = ends(-axis.padding), ends(axis.kernel - axis.padding)
    if include_pad:
        end = b.pointwise("minimum", end, b.full(axis.pixels + axis.padding, dtype))
    else:
        begin = b.pointwise("maximum", begin, b.full(0, dtype))
        end = b.pointwise("minimum", end, b.full(axis.pixels, dtype))
    return b.pointwise("sub", end, begin)


def _divisor(b, x, axes, dtype, include_pad, override):
    if override is not None:
        return b.full(override, dtype)
    within = all(
        (a.windows - 1) * a.stride + a.kernel <= a.pixels + 2 * a.padding for a in axes
    ) and (include_pad or not any(a.padding for a in axes))
    if within:
        return b.full(math.prod(a.kernel for a in axes), dtype)
    counts = [_counted(b, x.rank, axis, dtype, include_pad) for axis in axes]
    total = counts[0]
    for count in counts[1:]:
        total = b.pointwise("mul", total, count)
    return total


@row("aten.avg_pool2d.default", "aten.avg_pool3d.default")
def avg_pool(
    call, x, kernel, stride=(), padding=(0,), ceil_mode=False, count_include_pad=True,
    divisor_override=None,
):  # fmt: skip
    if not x.dtype.is_floating_point:
        raise call.error(f"an average of integers: windows of {x.dtype}")
    b, dims = call.b, 2 if "2d" in call.name else 3
    y = Ref(-1, 0, x.dtype, call.shape)
    axes = _axes(x, y, list(kernel) * (dims if len(kernel) == 1 else 1), stride, padding)
    compute = dtypes.compute_dtype(x.dtype)
    total = _added(b, _taps(b, b.cast(x, compute), axes, 0))
    divisor = _divisor(b, x, axes, compute, count_include_pad, divisor_override)
    return b.cast(b.pointwise("div", total, divisor), x.dtype)


@row("aten.avg_pool2d_backward.default", "aten.avg_pool3d_backward.default")
def avg_pool_backward(
    call, dy, x, kernel, stride, padding, ceil_mode, count_include_pad, divisor_override
):
    b = call.b
    axes = _axes(x, dy, list(kernel) * (x.rank - 2 if len(kernel) == 1 else 1), stride, padding)
    compute = dtypes.compute_dtype(dy.dtype)
    divisor = _divisor(b, x, axes, compute, count_include_pad, divisor_override)
    share = b.pointwise("div", b.cast(dy, compute), divisor)
    terms = (_of_turns(b, share, axes, turns, 0) for turns in _all_turns(axes))
    return b.cast(_added(b, terms), dy.dtype)


# --- winners by number ---------------------------------------------------------------------------
def _to_winners(call, dy, x, index, dims):
    """dy[.., p] added to the pixel whose number the index gives; pixels are counted over the last
    `dims` axes."""
    b = call.b
    planes = math.prod(x.shape[:-dims])
    pixels = math.prod(x.shape[-dims:])
    lines = (planes, math.prod(dy.shape[-dims:]))
    begin = b.iota(torch.int64, (planes, 1), 0, 0, pixels)
    place = b.pointwise("add", b.cast(b.reshape(index, lines), torch.int64), begin)
    count = (math.prod(lines),)
    zeros = b.full(0, dy.dtype, (planes * pixels,))
    return b.reshape(b.index_add(zeros, b.reshape(place, count), b.reshape(dy, count), 0), x.shape)


@row("aten.adaptive_max_pool2d_backward.default", "aten.adaptive_max_pool3d_backward.default")
def adaptive_max_pool_backward(call, dy, x, index):
    return _to_winners(call, dy, x, index, 2 if "2d" in call.name else 3)


@row("aten.fractional_max_pool2d_backward.default", "aten.fractional_max_pool3d_backward.default")
def fractional_max_pool_backward(call, dy, x, kernel, output_size, index):
    return _to_winners(call, dy, x, index, len(kernel))
