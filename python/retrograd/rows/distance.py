"""Rows of the table for gradients over pairs: distances and bags of embeddings."""

import math

import torch

from retrograd.aten_table import arithmetic, compare, row


@row("aten._cdist_backward.default")
def cdist_backward(call, dy, x, y, p, distance):
    """The gradient for x of |x_i - y_j|_p: sign(d) |d|^(p-1) dy / distance^(p-1), summed over j; 0
    where the distance is."""
    b = call.b
    if p == 0:  # a count
        return b.full(0, dy.dtype, call.shape)
    pairs = b.pointwise("sub", _row(b, x, -2), _row(b, y, -3))
    dy, distance = _row(b, dy, -1), _row(b, distance, -1)
    slope = _slope(call, pairs, distance, p)
    terms = b.pointwise("mul", slope, dy)
    apart = compare(call, "ne", distance, 0)
    terms = b.pointwise("where", apart, terms, b.full(0, dy.dtype))
    gradient = b.reduce("sum", terms, [terms.rank - 2])
    batches = gradient.rank - len(call.shape)  # that x has once for all
    batches = [a for a in range(gradient.rank) if a < batches or (
        gradient.shape[a] != call.shape[a - batches])]  # fmt: skip
    return b.reshape(b.reduce("sum", gradient, batches), call.shape)


def _row(b, x, axis):
    """x with a new axis at the place `axis` counted from the end of the result."""
    at = x.rank + 1 + axis
    return b.reshape(x, (*x.shape[:at], 1, *x.shape[at:]))


def _slope(call, pairs, distance, p):
    b = call.b
    sign = b.pointwise("sign", pairs)
    if p == 1:
        return sign
    if p == 2:
        return b.pointwise("div", pairs, distance)
    size = b.pointwise("abs", pairs)
    if p == math.inf:  # every element that reaches the distance
        furthest = b.pointwise("eq", size, distance, dtype=torch.bool)
        return b.pointwise("mul", sign, b.cast(furthest, sign.dtype))
    ratio = b.pointwise("div", size, distance)
    power = b.pointwise("pow", ratio, b.full(p - 1, ratio.dtype))
    slope = b.pointwise("mul", sign, power)
    return b.pointwise("where", compare(call, "ne", pairs, 0), slope, b.full(0, sign.dtype))


# --- bags of embeddings --------------------------------------------------------------------------
_SUM, _MEAN, _MAX = range(3)


@row("aten._embedding_bag_backward.default")
def embedding_bag_backward(
    call, dy, indices, offsets, bags, sizes, winners, rows, by_frequency, mode, sparse, weights,
    padding=-1,
):  # fmt: skip
    if sparse:
        raise call.error("a sparse gradient has no counterpart; pass sparse=False")
    if bags.shape != indices.shape:
        bags = _bags(call, indices, offsets)
    return embedding_bag_dense_backward(
        call, dy, indices, bags, sizes, winners, rows, by_frequency, mode, weights, padding
    )


@row("aten._embedding_bag_dense_backward.default")
def embedding_bag_dense_backward(
    call, dy, indices, bags, sizes, winners, rows, by_frequency, mode, weights, padding=-1
):
    """Each index gives its row the gradient of its bag; a maximum gives it to the winner's row."""
    if by_frequency:  # PyTorch's own devices disagree: its CPU divides by another index's count
        raise call.error("scale_grad_by_freq has no counterpart")
    b = call.b
    table = b.full(0, dy.dtype, (rows, dy.shape[1]))
    if mode == _MAX:
        return _to_winners(call, table, dy, winners, sizes)
    line = [indices.shape[0], 1]
    share = b.index_select(dy, bags, 0)
    if mode == _MEAN:
        count = b.pointwise("maximum", sizes, b.full(1, sizes.dtype))
        count = b.reshape(b.index_select(count, bags, 0), line)
        share = arithmetic(call, "div", share, b.cast(count, dy.dtype))
    if weights is not None:
        share = b.pointwise("mul", share, b.reshape(weights, line))
    if padding >= 0:
        padded = b.reshape(compare(call, "eq", indices, padding), line)
        share = b.pointwise("where", padded, b.full(0, dy.dtype), share)
    return b.index_add(table, indices, share, 0)


def _bags(call, indices, offsets):
    """The bag of each index, which PyTorch's CPU leaves out where a sum needs none: as many bags as
    begin at it or before it, less one."""
    b, (count,) = call.b, indices.shape
    place = b.iota(torch.int64, (count, 1), 0)
    begun = compare(call, "ge", place, b.reshape(b.cast(offsets, torch.int64), (1, *offsets.shape)))
    return b.pointwise("sub", b.reduce("sum", b.cast(begun, torch.int64), [1]), b.full(1, torch.int64))


def _to_winners(call, table, dy, winners, sizes):
    """dy[bag, column] to table[winners[bag, column], column]; an empty bag has no winner."""
    b = call.b
    rows, columns = table.shape
    winners = b.cast(winners, torch.int64)
    none = b.reshape(compare(call, "eq", sizes, 0), (dy.shape[0], 1))
    place = b.pointwise("mul", winners, b.full(columns, torch.int64))
    place = b.pointwise("add", place, b.iota(torch.int64, (1, columns), 1))
    place = b.pointwise("where", none, b.full(rows * columns, torch.int64), place)
    flat = b.reshape(table, (rows * columns,))
    count = (math.prod(dy.shape),)
    flat = b.index_add(flat, b.reshape(place, count), b.reshape(dy, count), 0)
    return b.reshape(flat, table.shape)


@row("aten._embedding_bag_per_sample_weights_backward.default")
def embedding_bag_weights_backward(call, dy, table, indices, offsets, bags, mode, padding=-1):
    b = call.b
    products = b.pointwise("mul", b.index_select(dy, bags, 0), b.index_select(table, indices, 0))
    gradient = b.reduce("sum", products, [1])
    if padding < 0:
        return gradient
    padded = compare(call, "eq", indices, padding)
    return b.pointwise("where", padded, b.full(0, dy.dtype), gradient)
