"""Rows of the table that index tensors by tensors, and what the scatters share with them."""

import math

import torch

from retrograd.aten_table import arithmetic, axis_of, compare, row
from retrograd.repeated_index import line_of


def wrapped(call, index, extent):
    """The index with negative entries counted from the end, as PyTorch's indexing does."""
    b = call.b
    shifted = b.pointwise("add", index, b.full(extent, index.dtype))
    return b.pointwise("where", compare(call, "lt", index, 0), shifted, index)


def _flat_index(call, x, indices, axes, wrap):
    """One index into the merged `axes` of x, from one broadcastable index tensor an axis."""
    b, flat = call.b, None
    for index, axis in zip(indices, axes):
        index = b.cast(index, torch.int64) if len(axes) > 1 else index
        # Alone, a negative index counts from the end of the axis by the op's own meaning.
        index = wrapped(call, index, x.shape[axis]) if wrap and len(axes) > 1 else index
        if flat is not None:
            flat = b.pointwise("mul", flat, b.full(x.shape[axis], torch.int64))
            index = b.pointwise("add", flat, index)
        flat = index
    return flat


class Indexing:
    """x[indices] for indices with None in the axes that are kept whole: the indexed axes of x are
    brought together and merged into one, `axis` of `shape`, which `index` selects from."""

    def __init__(self, call, x, indices, wrap):
        if any(i is not None and i.dtype in (torch.bool, torch.uint8) for i in indices):
            raise call.error("indexing by a mask has a result whose shape depends on the data")
        axes = [a for a, i in enumerate(indices) if i is not None]
        adjacent = axes == list(range(axes[0], axes[-1] + 1))
        first = axes[0] if adjacent else 0  # where PyTorch puts the index's own axes
        rest = [a for a in range(x.rank) if a not in axes]
        self.perm = rest[:first] + axes + rest[first:]
        self.axis = first
        permuted = [x.shape[p] for p in self.perm]
        merged = math.prod(x.shape[a] for a in axes)
        self.shape = (*permuted[:first], merged, *permuted[first + len(axes) :])
        self.index = _flat_index(call, x, [indices[a] for a in axes], axes, wrap)
        self.permuted_shape = permuted

    def merge(self, b, x):
        return b.reshape(b.permute(x, self.perm), self.shape)

    def unmerge(self, b, x):
        inverse = sorted(range(len(self.perm)), key=lambda i: self.perm[i])
        return b.permute(b.reshape(x, self.permuted_shape), inverse)

    @property
    def selected_shape(self):
        return (*self.shape[: self.axis], *self.index.shape, *self.shape[self.axis + 1 :])


def _may_be_negative(call):
    """Indices of an embedding never are; others may be."""
    return "embedding" not in call.original_aten


@row("aten.index.Tensor", "aten._unsafe_index.Tensor")
def index_tensor(call, x, indices):
    at = Indexing(call, x, indices, _may_be_negative(call))
    return call.b.index_select(at.merge(call.b, x), at.index, at.axis)


@row("aten.index_put.default", "aten._unsafe_index_put.default")
def index_put(call, x, indices, values, accumulate=False):
    b = call.b
    values = b.cast(values, x.dtype)
    mask = indices[0]
    single = math.prod(values.shape) == 1
    if len(indices) == 1 and mask is not None and mask.dtype == torch.bool and single:
        mask = b.reshape(mask, (*mask.shape, *[1] * (x.rank - mask.rank)))
        value = b.reshape(values, ())
        value = b.pointwise("add", x, value) if accumulate else value
        return b.pointwise("where", mask, value, x)
    at = Indexing(call, x, indices, _may_be_negative(call))
    src = b.expand(values, at.selected_shape)
    merged = at.merge(b, x)
    if accumulate:
        return at.unmerge(b, added(b, merged, at.index, src, at.axis))
    src = b.reshape(values, ()) if single else src
    return at.unmerge(b, put(call, merged, at.index, src, at.axis))


@row("aten.index_select.default")
def index_select(call, x, axis, index):
    b, axis = call.b, axis_of(x, axis)
    return b.reshape(b.index_select(as_line(b, x), as_line(b, index), axis), call.shape)


@row("aten.embedding.default")
def embedding(call, weight, index, *_, **__):
    return call.b.index_select(weight, index, 0)


@row("aten.index_add.default")
def index_add(call, x, axis, index, src, alpha=1):
    b = call.b
    src = b.cast(src if alpha == 1 else arithmetic(call, "mul", src, alpha), x.dtype)
    if x.rank == 0:
        x, src = as_line(b, x), as_line(b, src)
    index = as_line(b, index)
    return b.reshape(added(b, x, index, src, axis_of(x, axis)), call.shape)


@row("aten.gather.default")
def gather(call, x, axis, index, **_):
    b, axis = call.b, axis_of(x, axis)
    if x.rank == 0:  # every index is 0
        return b.expand(x, index.shape)
    if not math.prod(index.shape):
        return b.full(0, x.dtype, index.shape)
    index = as_line(b, index if index.dtype == torch.int32 else b.cast(index, torch.int64))
    for other in range(x.rank):  # the index may be shorter than x elsewhere
        if other != axis:
            x = b.slice(x, other, 0, index.shape[other])
    rows = line_of(b, index, axis)
    if rows is not None:
        return b.reshape(b.index_select(x, rows, axis), call.shape)
    return b.reshape(b.gather(x, index, axis), call.shape)


# --- how rows write at indices -------------------------------------------------------------------
def as_line(b, x):
    """A tensor of no axes as one element of an axis."""
    return x if x.rank else b.reshape(x, (1,))


def added(b, base, index, src, axis):
    """index_add; of booleans, whether any is true."""
    if base.dtype != torch.bool:
        return b.index_add(base, index, src, axis)
    total = b.index_add(b.cast(base, torch.int32), index, b.cast(src, torch.int32), axis)
    return b.pointwise("ne", total, b.full(0, torch.int32), dtype=torch.bool)


def put(call, base, index, src, axis):
    """The base with src at the index along the axis. A src of no axes is the value for all; of
    values for one place, between which PyTorch leaves the choice open, the mean stays: the value
    itself where they are equal."""
    b = call.b
    line = b.full(0, torch.int32, (base.shape[axis],))
    count = b.index_add(line, index, b.full(1, torch.int32, index.shape), 0)
    count = b.reshape(count, [n if a == axis else 1 for a, n in enumerate(base.shape)])
    if src.rank:
        src = _mean(b, b.full(0, base.dtype, base.shape), index, src, axis, count)
    return b.pointwise("where", compare(call, "gt", count, 0), src, base)


def _mean(b, zeros, index, src, axis, count):
    """The sum at each place over how many values it has. Integers are exact where that is one."""
    total = added(b, zeros, index, src, axis)
    if total.dtype == torch.bool:
        return total
    several = b.pointwise("maximum", count, b.full(1, torch.int32))
    if total.dtype.is_floating_point:
        return b.pointwise("div", total, b.cast(several, total.dtype))
    share = b.pointwise("div", b.cast(total, torch.float64), b.cast(several, torch.float64))
    alone = b.pointwise("eq", several, b.full(1, torch.int32), dtype=torch.bool)
    return b.pointwise("where", alone, total, b.cast(share, total.dtype))
