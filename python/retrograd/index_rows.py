"""Rows of the table that gather and scatter by index tensors."""

import math

import torch

from retrograd.aten_table import arithmetic, axis_of, compare, convert, row


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
        index = wrapped(call, index, x.shape[axis]) if wrap else index
        if flat is not None:
            flat = b.pointwise("mul", flat, b.full(x.shape[axis], torch.int64))
            index = b.pointwise("add", flat, index)
        flat = index
    return flat


class _Indexing:
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
    at = _Indexing(call, x, indices, _may_be_negative(call))
    return call.b.index_select(at.merge(call.b, x), at.index, at.axis)


@row("aten.index_put.default", "aten._unsafe_index_put.default")
def index_put(call, x, indices, values, accumulate=False):
    b = call.b
    values = b.cast(values, x.dtype)
    if not accumulate:
        mask = indices[0]
        if len(indices) == 1 and mask.dtype == torch.bool and values.rank == 0:
            mask = b.reshape(mask, (*mask.shape, *[1] * (x.rank - mask.rank)))
            return b.pointwise("where", mask, values, x)
        raise call.error("index_put without accumulate depends on the order of equal indices")
    at = _Indexing(call, x, indices, _may_be_negative(call))
    src = b.expand(values, at.selected_shape)
    return at.unmerge(b, b.index_add(at.merge(b, x), at.index, src, at.axis))


@row("aten.index_select.default")
def index_select(call, x, axis, index):
    return call.b.index_select(x, index, axis_of(x, axis))


@row("aten.embedding.default")
def embedding(call, weight, index, *_, **__):
    return call.b.index_select(weight, index, 0)


@row("aten.index_add.default")
def index_add(call, x, axis, index, src, alpha=1):
    b = call.b
    src = b.cast(src if alpha == 1 else arithmetic(call, "mul", src, alpha), x.dtype)
    return b.index_add(x, index, src, axis_of(x, axis))


@row("aten.gather.default")
def gather(call, x, axis, index, **_):
    axis = axis_of(x, axis)
    for other in range(x.rank):  # the index may be shorter than x elsewhere
        if other != axis:
            x = call.b.slice(x, other, 0, index.shape[other])
    return call.b.gather(x, index, axis)


def _line_mask(call, x, axis, index):
    """True where a position along `axis` of x is the one that its line's single index names."""
    b = call.b
    same = all(index.shape[a] == x.shape[a] for a in range(x.rank) if a != axis)
    if index.shape[axis] != 1 or not same:
        raise call.error(
            f"a scatter of {list(index.shape)} indices into {list(x.shape)} has no counterpart; "
            "only one index per line along the axis is supported"
        )
    extents = [n if a == axis else 1 for a, n in enumerate(x.shape)]
    return compare(call, "eq", b.iota(index.dtype, extents, axis), index)


@row("aten.scatter.value")
def scatter_value(call, x, axis, index, value):
    mask = _line_mask(call, x, axis_of(x, axis), index)
    return call.b.pointwise("where", mask, convert(call.b, value, x.dtype), x)


@row("aten.scatter.src")
def scatter_src(call, x, axis, index, src):
    axis = axis_of(x, axis)
    mask = _line_mask(call, x, axis, index)
    for a in range(x.rank):
        src = call.b.slice(src, a, 0, index.shape[a])
    return call.b.pointwise("where", mask, src, x)


@row("aten.scatter_add.default")
def scatter_add(call, x, axis, index, src):
    """x[.., index[i], ..] += src[i], as an index_add into the flattened x."""
    b, axis, strides = call.b, axis_of(x, axis), [1] * x.rank
    for a in reversed(range(x.rank - 1)):
        strides[a] = strides[a + 1] * x.shape[a + 1]
    flat = None
    for a in range(x.rank):
        src = b.slice(src, a, 0, index.shape[a])
        extents = [n if i == a else 1 for i, n in enumerate(index.shape)]
        place = index if a == axis else b.iota(torch.int64, extents, a)
        place = b.pointwise("mul", b.cast(place, torch.int64), b.full(strides[a], torch.int64))
        flat = place if flat is None else b.pointwise("add", flat, place)
    total = (math.prod(index.shape),)
    base = b.reshape(x, (math.prod(x.shape),))
    added = b.index_add(base, b.reshape(flat, total), b.reshape(src, total), 0)
    return b.reshape(added, x.shape)
