"""Rows of the table for weights that are a direction v times a length g (weight_norm)."""

from retrograd import dtypes
from retrograd.aten_table import row


@row("aten._weight_norm_interface.default")
def weight_norm(call, v, g, dim=0):
    """(g v / |v|, |v|), the norm over all axes but `dim`."""
    b, dtype = call.b, dtypes.compute_dtype(v.dtype)
    whole = b.cast(v, dtype)
    square = b.reduce("sum", b.pointwise("mul", whole, whole), _others(v, dim), keep=True)
    norm = b.pointwise("sqrt", square)
    scale = b.pointwise("div", b.cast(g, dtype), norm)
    return b.cast(b.pointwise("mul", whole, scale), v.dtype), norm


@row("aten._weight_norm_interface_backward.default")
def weight_norm_backward(call, dw, v, g, norm, dim):
    """The gradients of v and g: (dw - u s) g / |v| and s, where u = v / |v| and s = sum(dw u)."""
    b, dtype = call.b, dtypes.compute_dtype(v.dtype)
    dw, length, norm = (b.cast(x, dtype) for x in (dw, g, norm))
    direction = b.pointwise("div", b.cast(v, dtype), norm)
    along = b.reduce("sum", b.pointwise("mul", dw, direction), _others(v, dim), keep=True)
    across = b.pointwise("sub", dw, b.pointwise("mul", direction, along))
    dv = b.pointwise("mul", across, b.pointwise("div", length, norm))
    return b.cast(dv, v.dtype), b.cast(along, g.dtype)


def _others(v, dim):
    return [axis for axis in range(v.rank) if axis != dim % v.rank]
