"""Rows of the table for views (no arithmetic, the same elements) and joins."""

import torch

from retrograd.aten_table import axis_of, row
from retrograd.sizes import identical


@row(
    "aten.view.default",
    "aten._unsafe_view.default",
    "aten.reshape.default",
    "aten.squeeze.default",
    "aten.squeeze.dim",
    "aten.squeeze.dims",
    "aten.unsqueeze.default",
    "aten.flatten.using_ints",
)
def reshape(call, x, *_):
    return call.b.reshape(x, call.shape)


@row("aten.permute.default")
def permute(call, x, perm):
    return call.b.permute(x, [axis_of(x, p) for p in perm])


@row("aten.t.default")
def t(call, x):
    return call.b.permute(x, list(reversed(range(x.rank))))


@row("aten.transpose.int")
def transpose(call, x, first, second):
    if x.rank == 0:
        return x
    perm = list(range(x.rank))
    first, second = axis_of(x, first), axis_of(x, second)
    perm[first], perm[second] = perm[second], perm[first]
    return call.b.permute(x, perm)


@row("aten.expand.default")
def expand(call, x, *_, **__):
    return call.b.expand(x, call.shape)


_END = 2**63 - 1  # a bound behind every extent


def _bounds(start, stop, extent):
    """What Python's slices make of the bounds of an axis of this extent, for ascending steps."""

    def inside(place, otherwise):
        if place is None or identical(place, otherwise):
            return otherwise
        if identical(place, _END):
            return extent
        if place < 0:
            return max(place + extent, 0)
        return min(place, extent)

    return inside(start, 0), inside(stop, extent)


@row("aten.slice.Tensor")
def slice_(call, x, axis=0, start=None, stop=None, step=1):
    axis = axis_of(x, axis)
    start, stop = _bounds(start, stop, x.shape[axis])
    return call.b.slice(x, axis, start, max(start, stop), step)


@row("aten.select.int")
def select(call, x, axis, index):
    axis = axis_of(x, axis)
    index %= x.shape[axis]
    return call.b.reshape(call.b.slice(x, axis, index, index + 1), call.shape)


def _pieces(call, x, sizes, axis):
    starts = [sum(sizes[:i]) for i in range(len(sizes))]
    return tuple(call.b.slice(x, axis, s, s + n) for s, n in zip(starts, sizes))


@row("aten.split.Tensor")
def split(call, x, size, axis=0):
    axis = axis_of(x, axis)
    extent = x.shape[axis]
    return _pieces(call, x, [min(size, extent - s) for s in range(0, extent, size)], axis)


@row("aten.split_with_sizes.default")
def split_with_sizes(call, x, sizes, axis=0):
    return _pieces(call, x, sizes, axis_of(x, axis))


@row("aten.unbind.int")
def unbind(call, x, axis=0):
    axis = axis_of(x, axis)
    kept = x.shape[:axis] + x.shape[axis + 1 :]
    return tuple(call.b.reshape(p, kept) for p in _pieces(call, x, [1] * x.shape[axis], axis))


@row("aten.flip.default", "prims.rev.default")
def flip(call, x, axes):
    return call.b.flip(x, [axis_of(x, a) for a in axes])


@row("aten.constant_pad_nd.default")
def constant_pad_nd(call, x, amounts, value=0):
    """`amounts`: (low, high) of the last axis, of the one before, ...; negative ones cut off."""
    low, high = [0] * x.rank, [0] * x.rank
    for i in range(len(amounts) // 2):
        low[-1 - i], high[-1 - i] = amounts[2 * i], amounts[2 * i + 1]
    for axis in range(x.rank):
        extent = x.shape[axis]
        x = call.b.slice(x, axis, max(0, -low[axis]), extent - max(0, -high[axis]))
    return call.b.pad(x, [max(0, l) for l in low], [max(0, h) for h in high], value)


@row("aten.repeat.default")
def repeat(call, x, repeats):
    """Each axis as (repeats, extent), of which the former is expanded."""
    b = call.b
    extents = (*[1] * (len(repeats) - x.rank), *x.shape)
    lying = [n for extent in extents for n in (1, extent)]
    spread = [n for pair in zip(repeats, extents, strict=True) for n in pair]
    return b.reshape(b.expand(b.reshape(x, lying), spread), call.shape)


@row("aten.unfold.default")
def unfold(call, x, axis, size, step):
    """Windows of x along the axis, whose elements lie along a new last axis."""
    b, axis = call.b, axis_of(x, axis)
    if x.rank == 0:
        return b.reshape(b.slice(b.reshape(x, (1,)), 0, 0, size), call.shape)
    windows = call.shape[axis]
    begin = b.iota(torch.int64, (windows, 1), 0, 0, step)
    index = b.pointwise("add", begin, b.iota(torch.int64, (1, size), 1))
    taken = b.index_select(x, index, axis)
    return b.permute(taken, [a for a in range(x.rank + 1) if a != axis + 1] + [axis + 1])


class _Diagonal:
    """A diagonal of two axes as a slice of both merged: every (columns + 1)-th element."""

    def __init__(self, x, offset, first, second):
        first, second = axis_of(x, first), axis_of(x, second)
        rest = [a for a in range(x.rank) if a not in (first, second)]
        rows, columns = x.shape[first], x.shape[second]
        self.perm = [*rest, first, second]
        self.permuted = [x.shape[p] for p in self.perm]
        self.shape = (*self.permuted[:-2], rows * columns)
        self.axis = len(rest)
        self.count = max(0, min(rows + min(offset, 0), columns - max(offset, 0)))
        self.start = max(offset, 0) - min(offset, 0) * columns if self.count else 0
        self.step = columns + 1
        self.stop = self.start + (self.count - 1) * self.step + 1 if self.count else 0

    def merge(self, b, x):
        return b.reshape(b.permute(x, self.perm), self.shape)

    def unmerge(self, b, x):
        inverse = sorted(range(len(self.perm)), key=lambda i: self.perm[i])
        return b.permute(b.reshape(x, self.permuted), inverse)


@row("aten.diagonal.default")
def diagonal(call, x, offset=0, first=0, second=1):
    at = _Diagonal(x, offset, first, second)
    return call.b.slice(at.merge(call.b, x), at.axis, at.start, at.stop, at.step)


@row("aten.diagonal_scatter.default")
def diagonal_scatter(call, base, src, offset=0, first=0, second=1):
    b, at = call.b, _Diagonal(base, offset, first, second)
    if not at.count:
        return base
    src = b.cast(src, base.dtype)
    merged = at.merge(b, base)
    if merged.shape[at.axis] == 1:
        return at.unmerge(b, src)
    return at.unmerge(b, b.slice_scatter(merged, src, at.axis, at.start, at.stop, at.step))


# --- joins ---------------------------------------------------------------------------------------
@row("aten.cat.default")
def cat(call, parts, axis=0):
    dtype = call.dtype
    parts = [p for p in parts if p.shape != (0,)]  # cat skips empty vectors, whatever the rank
    if not parts:
        return call.b.full(0, dtype, call.shape)
    return call.b.cat([call.b.cast(p, dtype) for p in parts], axis_of(parts[0], axis))


@row("aten.stack.default")
def stack(call, parts, axis=0):
    axis %= parts[0].rank + 1
    shape = (*parts[0].shape[:axis], 1, *parts[0].shape[axis:])
    return call.b.cat([call.b.reshape(call.b.cast(p, call.dtype), shape) for p in parts], axis)


@row("aten.slice_scatter.default")
def slice_scatter(call, base, src, axis=0, start=None, stop=None, step=1):
    axis = axis_of(base, axis)
    start, stop = _bounds(start, stop, base.shape[axis])
    if identical((start, stop, step), (0, base.shape[axis], 1)):
        return call.b.cast(src, base.dtype)
    src = call.b.cast(src, base.dtype)
    return call.b.slice_scatter(base, src, axis, start, max(start, stop), step)


@row("aten.select_scatter.default")
def select_scatter(call, base, src, axis, index):
    axis = axis_of(base, axis)
    index %= base.shape[axis]
    src = call.b.cast(src, base.dtype)
    src = call.b.reshape(src, (*base.shape[:axis], 1, *base.shape[axis + 1 :]))
    if base.shape[axis] == 1:
        return src
    return call.b.slice_scatter(base, src, axis, index, index + 1, 1)
