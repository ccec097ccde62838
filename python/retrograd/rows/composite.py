"""Rows of the table for the backwards that stay whole under composites="whole"."""

import functools
import math

import torch

from retrograd.aten_table import axis_of, compare, row


def _composite(call, op, operands, result_shapes, result_dtypes):
    """A composite on operands of one dtype, its results cast to what PyTorch gives."""
    b = call.b
    dtype = functools.reduce(torch.promote_types, (x.dtype for x in operands))
    operands = [b.cast(x, dtype) for x in operands]
    results = b.node(op, operands, [(dtype, shape) for shape in result_shapes])
    return [b.cast(r, d) for r, d in zip(results, result_dtypes)]


def _elementwise(call, op, dy, x):
    return _composite(call, op, (dy, x), [call.shape], [call.dtype])[0]


@row("aten.gelu_backward.default")
def gelu_backward(call, dy, x, approximate="none"):
    op = "gelu_tanh_backward" if approximate == "tanh" else "gelu_backward"
    return _elementwise(call, op, dy, x)


@row("aten.silu_backward.default")
def silu_backward(call, dy, x):
    return _elementwise(call, "silu_backward", dy, x)


@row("aten.threshold_backward.default")
def threshold_backward(call, dy, x, threshold):
    if threshold != 0:
        below = compare(call, "le", x, threshold)
        return call.b.pointwise("where", below, call.b.full(0, dy.dtype), dy)
    return _elementwise(call, "relu_backward", dy, x)


@row("aten.tanh_backward.default")
def tanh_backward(call, dy, y):
    return _elementwise(call, "tanh_backward", dy, y)


@row("aten.sigmoid_backward.default")
def sigmoid_backward(call, dy, y):
    return _elementwise(call, "sigmoid_backward", dy, y)


def _along_last(call, op, dy, y, axis):
    """A backward over the last axis, with `axis` brought there and back."""
    b = call.b
    if y.rank == 0:
        dy, y = b.reshape(dy, (1,)), b.reshape(y, (1,))
    axis = axis_of(y, axis)
    perm = [a for a in range(y.rank) if a != axis] + [axis]
    dy, y = b.permute(dy, perm), b.permute(y, perm)
    (dx,) = _composite(call, op, (dy, y), [y.shape], [call.dtype])
    return b.reshape(b.permute(dx, sorted(range(y.rank), key=lambda i: perm[i])), call.shape)


@row("aten._softmax_backward_data.default")
def softmax_backward(call, dy, y, axis, _):
    return _along_last(call, "softmax_backward", dy, y, axis)


@row("aten._log_softmax_backward_data.default")
def log_softmax_backward(call, dy, y, axis, _):
    return _along_last(call, "log_softmax_backward", dy, y, axis)


def _norm(call, op, dy, x, statistics, weight, normalized_shape, results):
    """A norm's backward over [rows.., C], with the normalized axes merged into one.

    statistics: [rows.., 1, ..] tensors. Returns dx in x's shape, then the weight's gradients in
    normalized_shape: `results` in all.
    """
    b = call.b
    width = math.prod(normalized_shape)
    rows = x.shape[: x.rank - len(normalized_shape)] or (1,)
    weight = b.full(1, x.dtype, (width,)) if weight is None else b.reshape(weight, (width,))
    flat = (*rows, width)
    statistics = [b.reshape(s, (*rows, 1)) for s in statistics]
    operands = [b.reshape(dy, flat), b.reshape(x, flat), *statistics, weight]
    dtypes = [x.dtype] + [weight.dtype] * (results - 1)
    shapes = [flat] + [(width,)] * (results - 1)
    dx, *rest = _composite(call, op, operands, shapes, dtypes)
    return (b.reshape(dx, x.shape), *(b.reshape(r, tuple(normalized_shape)) for r in rest))


@row("aten._fused_rms_norm_backward.default")
def rms_norm_backward(call, dy, x, normalized_shape, rstd, weight, _):
    return _norm(call, "rms_norm_backward", dy, x, [rstd], weight, normalized_shape, 2)


@row("aten.native_layer_norm_backward.default")
def layer_norm_backward(call, dy, x, normalized_shape, mean, rstd, weight, _, __):
    return _norm(call, "layer_norm_backward", dy, x, [mean, rstd], weight, normalized_shape, 3)
