"""Rows of the table that scatter: each element of an index names a place of its own in x, along one
axis or under a mask."""

import math

import torch

from retrograd.aten_table import axis_of, compare, convert, row
from retrograd.repeated_index import line_of, lists_of, operand_of
from retrograd.rows.index import Indexing, added, as_line, put
from retrograd.sizes import identical

# Indices of a line that are compared with each of its positions, for each byte of an element: an
# estimate of how many cost about as much as to read and to write the line.
_COMPARED_A_BYTE = 4

# Elements of a row that an index names: to add up shorter ones costs less line by line than to sort
# the rows that are named. An estimate.
_LEAST_ROW = 8


class _Lines:
    """x, index and src of a scatter, all with an axis at least."""

    def __init__(self, call, x, axis, index, src=None):
        b = call.b
        self.call, self.b, self.axis = call, b, axis_of(x, axis)
        self.x, self.index = as_line(b, x), as_line(b, index)
        # Whether no two indices of a line are the same.
        self.distinct = index.rank > 0 and b.distinct.get(index.node) == self.axis
        self.src = None if src is None else self._meeting(as_line(b, src))

    def _meeting(self, src):
        """The part of src that the index has a place for."""
        for axis, extent in enumerate(self.index.shape):
            src = self.b.slice(src, axis, 0, extent)
        return self.b.cast(src, self.x.dtype)

    def named(self, src):
        """For each index of a line, in their order: (true at the position that it names, its part of
        src); None where lines have many indices, or some have none."""
        b, x, index, axis = self.b, self.x, self.index, self.axis
        count = index.shape[axis]
        # An index without elements may have any rank.
        same = index.rank == x.rank and all(
            index.shape[a] == x.shape[a] for a in range(x.rank) if a != axis
        )
        if not 1 <= count <= self._most_compared() or not same:
            return None
        extents = [n if a == axis else 1 for a, n in enumerate(x.shape)]
        if not isinstance(x.shape[axis], int) or x.shape[axis] < 2**31:  # words compare faster
            index = b.cast(index, torch.int32)
        position = b.iota(index.dtype, extents, axis)

        def part(t, i):
            return b.slice(t, axis, i, i + 1) if t.rank and count > 1 else t

        return [
            (compare(self.call, "eq", position, part(index, i)), part(src, i)) for i in range(count)
        ]

    def _most_compared(self):
        x = self.x
        at_once = self.distinct and x.dtype.is_floating_point and _is_zero(self.b, x)
        return 1 if at_once else _COMPARED_A_BYTE * x.dtype.itemsize

    def rows(self):
        """The list of the rows that an index names which is one list at every place of them; None
        of any other."""
        x, index, axis = self.x, self.index, self.axis
        if index.rank != x.rank or any(
            index.shape[a] != x.shape[a] for a in range(x.rank) if a != axis
        ):
            return None
        rows = line_of(self.b, index, axis)
        if rows is None or rows.dtype == torch.int32:
            return rows
        return self.b.cast(rows, torch.int64)

    def rows_of_lists(self):
        """x with the parts added, where the index names rows of each part of x along the axes before
        the axis: as rows of all parts, one behind the other. None of any other index, and where a
        size is no number."""
        b, x, index, axis = self.b, self.x, self.index, self.axis
        before, behind = x.shape[:axis], x.shape[axis + 1 :]
        numbers = all(isinstance(n, int) for n in (*x.shape, *index.shape))
        if not numbers or index.rank != x.rank or math.prod(behind) < _LEAST_ROW:
            return None
        if index.shape[:axis] != before or index.shape[axis + 1 :] != behind:
            return None
        lists = lists_of(b, index, axis)
        if lists is None:
            return None
        extent, parts = x.shape[axis], math.prod(before)
        lists = b.reshape(b.cast(lists, torch.int64), (parts, index.shape[axis]))
        first = b.iota(torch.int64, (parts, 1), 0, 0, extent)
        rows = b.reshape(b.pointwise("add", lists, first), (parts * index.shape[axis],))
        table = b.reshape(x, (parts * extent, *behind))
        src = b.reshape(self.src, (parts * index.shape[axis], *behind))
        return b.reshape(added(b, table, rows, src, 0), x.shape)

    def lines(self):
        """x with the parts added line by line; None where x has no floating values."""
        b, x = self.b, self.x
        sums = self.sums(self.src)
        return sums if sums is None or _is_zero(b, x) else b.pointwise("add", x, sums)

    def sums(self, src):
        """The parts of src that each line of x is given, added up; None where x has no floating
        values."""
        b, x, index, axis = self.b, self.x, self.index, self.axis
        if not x.dtype.is_floating_point or index.rank != x.rank:
            return None
        to_last = [a for a in range(x.rank) if a != axis] + [axis]
        back = sorted(range(x.rank), key=to_last.__getitem__)
        if index.dtype != torch.int32:
            index = b.cast(index, torch.int64)
        index, src = b.permute(index, to_last), b.permute(src, to_last)
        sums = b.permute(b.scatter_lines(index, src, x.shape[axis]), back)
        if not identical(sums.shape, x.shape):  # the index may lack lines of x
            lacking = [n - m for n, m in zip(x.shape, sums.shape, strict=True)]
            sums = b.pad(sums, [0] * x.rank, lacking, 0.0)
        return sums

    def mean(self, src):
        """x, and where the index names a position the mean of what it is given, which is `src` itself
        if that is one number; None where x has no floating values."""
        b, x = self.b, self.x
        if not math.prod(x.shape) or not math.prod(self.index.shape):
            return None
        if self.distinct and src.rank and _is_zero(b, x):
            return self.sums(src)
        counts = self.sums(b.full(1, torch.float32, self.index.shape))
        if counts is None:
            return None
        is_named = b.pointwise("gt", counts, b.full(0, torch.float32), dtype=torch.bool)
        if not src.rank:
            return b.pointwise("where", is_named, src, x)
        wide = torch.float64 if x.dtype == torch.float64 else torch.float32
        sums = self.sums(b.cast(src, wide))
        most = b.pointwise("maximum", counts, b.full(1, torch.float32))
        mean = b.pointwise("div", sums, b.cast(most, wide))
        mean = b.cast(mean, x.dtype)
        if _is_zero(b, x):  # as the sums are where nothing is named
            return mean
        return b.pointwise("where", is_named, mean, x)

    def places(self):
        """For each element of the index its place in the flattened x."""
        b, x, index = self.b, self.x, self.index
        total, stride = None, math.prod(x.shape)
        for a, extent in enumerate(x.shape):
            stride //= max(extent, 1)
            extents = [n if i == a else 1 for i, n in enumerate(index.shape)]
            place = index if a == self.axis else b.iota(torch.int64, extents, a)
            place = b.pointwise("mul", b.cast(place, torch.int64), b.full(stride, torch.int64))
            total = place if total is None else b.pointwise("add", total, place)
        return self.flat(total)

    def flat(self, x):
        return self.b.reshape(x, (math.prod(x.shape),))

    def result(self, x):
        return self.b.reshape(x, self.call.shape)


def _is_zero(b, x):
    """Whether x is a constant of zeros, as far as its node tells."""
    node = b.graph.nodes[x.node]
    if node.op in ("expand", "reshape", "cast"):
        return _is_zero(b, operand_of(b, node))
    if node.op != "full":
        return False
    value = next(attr for attr in node.attrs if attr.name == "value")
    return getattr(value, value.WhichOneof("value")) == 0


def _scattered(lines, src):
    b, named = lines.b, lines.named(src)
    if named is not None:
        result = lines.x
        # Of two that name one position the later stays, as on a CPU; of sorted ones their mean does:
        # PyTorch leaves the choice open.
        for mask, part in named:
            result = b.pointwise("where", mask, part, result)
        return lines.result(result)
    mean = lines.mean(src)
    if mean is not None:
        return lines.result(mean)
    src = lines.flat(src) if src.rank else src
    return lines.result(put(lines.call, lines.flat(lines.x), lines.places(), src, 0))


def _summed(b, x, named):
    """x with the parts added where they are named: floats in fp32 at least, and rounded once; of
    booleans, whether any is true."""
    narrow = x.dtype.is_floating_point and x.dtype.itemsize < 4
    wide = torch.int32 if x.dtype == torch.bool else torch.float32 if narrow else x.dtype
    total = b.cast(x, wide)
    for mask, part in named:
        added_up = b.pointwise("add", total, b.cast(part, wide))
        total = b.pointwise("where", mask, added_up, total)
    if x.dtype == torch.bool:
        return b.pointwise("ne", total, b.full(0, wide), dtype=torch.bool)
    return b.cast(total, x.dtype)


@row("aten.scatter.value")
def scatter_value(call, x, axis, index, value):
    return _scattered(_Lines(call, x, axis, index), convert(call.b, value, x.dtype))


@row("aten.scatter.src")
def scatter_src(call, x, axis, index, src):
    lines = _Lines(call, x, axis, index, src)
    return _scattered(lines, lines.src)


@row("aten.scatter_add.default")
def scatter_add(call, x, axis, index, src):
    """x[.., index[i], ..] += src[i], as an index_add of rows where the index names such; where lines
    have few indices by comparing them with each position; else line by line, or into the
    flattened x."""
    lines = _Lines(call, x, axis, index, src)
    rows = lines.rows()
    if rows is not None:
        return lines.result(added(call.b, lines.x, rows, lines.src, lines.axis))
    named = lines.named(lines.src)
    if named is not None:
        return lines.result(_summed(call.b, lines.x, named))
    of_lists = lines.rows_of_lists()
    if of_lists is not None:
        return lines.result(of_lists)
    sums = lines.lines()
    if sums is not None:
        return lines.result(sums)
    base, src = lines.flat(lines.x), lines.flat(lines.src)
    return lines.result(added(call.b, base, lines.places(), src, 0))


# --- under a mask --------------------------------------------------------------------------------
def _ranks(b, mask):
    """For each element of the flat mask how many true ones stand before it."""
    ones = b.cast(mask, torch.int64)
    return b.pointwise("sub", b.scan("cumsum", ones, 0), ones)


@row("aten.masked_scatter.default")
def masked_scatter(call, x, mask, src):
    """The elements of src, in their order, where the mask is true."""
    b = call.b
    total = (math.prod(call.shape),)
    mask = b.reshape(b.expand(mask, call.shape), total)
    x = b.reshape(b.expand(x, call.shape), total)
    src = b.reshape(src, (math.prod(src.shape),))
    taken = b.index_select(src, _ranks(b, mask), 0)
    return b.reshape(b.pointwise("where", mask, taken, x), call.shape)


@row("aten.masked_scatter_backward.default")
def masked_scatter_backward(call, dy, mask, _):
    """dy where the mask is true, one behind the other, and zeros behind the last. Where it is false
    the index is outside, which adds nothing."""
    b, shape = call.b, call.shape
    count, total = math.prod(shape), math.prod(dy.shape)
    mask = b.reshape(b.expand(mask, dy.shape), (total,))
    place = b.pointwise("where", mask, _ranks(b, mask), b.full(count, torch.int64))
    line = b.index_add(b.full(0, dy.dtype, (count,)), place, b.reshape(dy, (total,)), 0)
    return b.reshape(line, shape)


@row("aten._unsafe_masked_index.default")
def masked_index(call, x, mask, indices, fill):
    """x at the indices where the mask is true; elsewhere they may be anything."""
    b = call.b
    at = Indexing(call, x, indices, True)
    value = b.index_select(at.merge(b, x), at.index, at.axis)
    return b.pointwise("where", mask, value, b.full(fill, x.dtype))


@row("aten._unsafe_masked_index_put_accumulate.default")
def masked_index_put_accumulate(call, x, mask, indices, values):
    b = call.b
    at = Indexing(call, x, indices, True)
    values = b.pointwise("where", mask, values, b.full(0, x.dtype))
    src = b.expand(values, at.selected_shape)
    return at.unmerge(b, added(b, at.merge(b, x), at.index, src, at.axis))
