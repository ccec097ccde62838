"""The row of the table for products of three tensors that are summed, as bilinear layers have them.

Of 16-bit floats two are multiplied and the product, rounded as PyTorch rounds it, is a matrix that
is multiplied by the third: so many terms are work for tensor cores. Of other types each term is
made, since matrices of fp32 may be multiplied in TF32, which nobody asked for here.
"""

import itertools
import math

import torch

from retrograd import dtypes
from retrograd.aten_table import row


@row("aten._trilinear.default")
def trilinear(call, x, y, z, new_x, new_y, new_z, summed, _=1):
    """x y z summed, each with new axes of extent 1 at the places given."""
    b = call.b
    factors = [_with_axes(b, v, a) for v, a in ((x, new_x), (y, new_y), (z, new_z))]
    summed = {a % factors[0].rank for a in summed}
    if call.dtype in (torch.bfloat16, torch.float16):
        third = _left_for_last(factors, summed)
        if third is not None:
            pair = [f for n, f in enumerate(factors) if n != third]
            return _by_matrices(b, _product(b, pair), factors[third], summed)
    total = b.reduce("sum", _product(b, factors, rounded=False), summed)
    return b.cast(total, call.dtype)


def _with_axes(b, x, axes):
    shape = list(x.shape)
    for axis in sorted(axes):
        shape.insert(axis, 1)
    return b.reshape(x, shape)


def _product(b, factors, rounded=True):
    compute = dtypes.compute_dtype(factors[0].dtype)
    product = b.cast(factors[0], compute)
    for factor in factors[1:]:
        product = b.pointwise("mul", product, b.cast(factor, compute))
    return b.cast(product, factors[0].dtype) if rounded else product


def _left_for_last(factors, summed):
    """The number of the factor without which the product is smallest, if every summed axis is then
    one of both matrices; None if there is none, sizes vary, or nothing is multiplied."""
    if not all(isinstance(n, int) and n > 0 for f in factors for n in f.shape):
        return None

    def elements(third):
        shapes = [f.shape for n, f in enumerate(factors) if n != third]
        return math.prod(max(extents) for extents in zip(*shapes, strict=True))

    def meets(third):
        pair = [f for n, f in enumerate(factors) if n != third]
        return all(
            factors[third].shape[a] > 1 and max(f.shape[a] for f in pair) > 1 for a in summed
        )

    return min(filter(meets, range(3)), key=elements, default=None)


def _by_matrices(b, x, y, summed):
    """x y summed over axes that both have, of one rank with extents of 1 where one lacks an axis."""
    kinds = {"batch": [], "rows": [], "columns": []}
    for axis in sorted(set(range(x.rank)) - summed):
        both = x.shape[axis] > 1 and y.shape[axis] > 1
        kinds["batch" if both else "columns" if y.shape[axis] > 1 else "rows"].append(axis)
    terms = sorted(summed)
    left = _matrix(b, x, kinds["batch"], kinds["rows"], terms)
    right = _matrix(b, y, kinds["batch"], terms, kinds["columns"])
    order = list(itertools.chain(*kinds.values()))
    extents = [max(x.shape[a], y.shape[a]) for a in order]
    result = b.reshape(b.matmul(left, right), extents)
    return b.permute(result, [order.index(a) for a in sorted(order)])


def _matrix(b, x, batch, rows, columns):
    others = [a for a in range(x.rank) if a not in (*batch, *rows, *columns)]  # of extent 1
    x = b.permute(x, (*batch, *rows, *columns, *others))
    sizes = [math.prod(x.shape[begin:end]) for begin, end in _ends(batch, rows, columns)]
    return b.reshape(x, sizes)


def _ends(*kinds):
    begin = 0
    for kind in kinds:
        yield begin, begin + len(kind)
        begin += len(kind)
