"""Rows of the table that address a tensor's storage: element i of the result is the storage's
element offset + i . stride. A Ref has no storage, but a dense tensor's is its elements in the order
of its recorded strides."""

import math

import torch

from retrograd.aten_table import row
from retrograd.rows.index import put


class _Storage:
    """A dense tensor's elements in the order in which they lie in memory."""

    def __init__(self, call, argument, x):
        tensor = call.addressed(argument)
        self.offset = tensor.storage_offset()
        self.perm = _dense_order(x.shape, tensor.stride())
        if self.perm is None:
            raise call.error(
                f"the strides {list(tensor.stride())} of {list(x.shape)} leave gaps or overlap; "
                "what lies at an address of such a tensor is not known here"
            )
        self.shape = [x.shape[p] for p in self.perm]
        self.length = math.prod(x.shape)

    def flat(self, b, x):
        return b.reshape(b.permute(x, self.perm), (self.length,))

    def unflat(self, b, flat):
        inverse = sorted(range(len(self.perm)), key=lambda i: self.perm[i])
        return b.permute(b.reshape(flat, self.shape), inverse)


def _dense_order(shape, strides):
    """The axes from the slowest to the fastest if their elements lie one behind the other without
    gaps; else None."""
    perm = sorted(range(len(shape)), key=lambda a: (shape[a] > 1, -strides[a] * (shape[a] > 1)))
    expected = 1
    for axis in reversed(perm):
        if shape[axis] == 1:
            continue
        if strides[axis] != expected and math.prod(shape):
            return None
        expected *= shape[axis]
    return perm


def _start(storage, offset):
    """The offset in the storage's elements; PyTorch counts from the start of a memory block."""
    return 0 if offset is None else offset - storage.offset


@row("aten.as_strided.default")
def as_strided(call, x, size, stride, offset=None):
    b, storage = call.b, _Storage(call, 0, x)
    start, flat = _start(storage, offset), storage.flat(b, x)
    perm = _dense_order(size, stride)
    if perm is not None and start == 0 and math.prod(size) == storage.length:
        lying = b.reshape(flat, [size[p] for p in perm])
        return b.permute(lying, sorted(range(len(perm)), key=lambda i: perm[i]))
    if math.prod(size) == 0:
        return b.full(0, x.dtype, size)
    _check_inside(call, storage, size, stride, start)
    return b.index_select(flat, _addresses(b, size, stride, start), 0)


def _check_inside(call, storage, size, stride, start):
    last = start + sum((n - 1) * s for n, s in zip(size, stride, strict=True))
    if start < 0 or last >= storage.length:
        raise call.error(
            f"elements {start} to {last} of a tensor of {storage.length} are addressed, which "
            "belong to another tensor of the same storage"
        )


def _addresses(b, size, stride, start):
    """start + i . stride for every index i of the size."""
    total = b.full(start, torch.int64, size)
    for axis, step in enumerate(stride):
        extents = [n if a == axis else 1 for a, n in enumerate(size)]
        if size[axis] > 1 and step:
            total = b.pointwise("add", total, b.iota(torch.int64, extents, axis, 0, step))
    return total


@row("aten.as_strided_scatter.default")
def as_strided_scatter(call, base, src, size, stride, offset=None):
    """The base with src at those places."""
    b, storage = call.b, _Storage(call, 0, base)
    src, start = b.cast(src, base.dtype), _start(storage, offset)
    if math.prod(size) == 0:
        return base
    perm = _dense_order(size, stride)
    if perm is not None and start == 0 and math.prod(size) == storage.length:
        return storage.unflat(b, b.reshape(b.permute(src, perm), (storage.length,)))
    _check_inside(call, storage, size, stride, start)
    flat = storage.flat(b, base)
    return storage.unflat(b, put(call, flat, _addresses(b, size, stride, start), src, 0))
