"""Rows of the table for convolutions and their gradients.

Tensors are [N, C, spatial..], weights [K, C / groups, spatial..]. A transposed convolution is the
input gradient of a plain one from y to x, so that its gradients are that convolution and its weight
gradient, with x and dy in each other's places.
"""

import dataclasses
import math

from retrograd.aten_table import row


@dataclasses.dataclass(frozen=True)
class Window:
    """How a convolution walks: one number a spatial dim, and the groups."""

    stride: list
    padding: list
    dilation: list
    groups: int

    def attrs(self):
        return dataclasses.asdict(self)

    def out_extents(self, extents, kernel):
        """What the convolution makes of an input of these extents."""
        walk = zip(extents, kernel, self.stride, self.padding, self.dilation, strict=True)
        return [(n + 2 * p - d * (k - 1) - 1) // s + 1 for n, k, s, p, d in walk]

    def is_pointwise(self, w):
        """Whether every pixel is multiplied by one matrix."""
        one_tap = math.prod(w.shape[2:]) == 1 and not any(self.padding)
        return self.groups == 1 and one_tap and set(self.stride) == {1}


def _per_dim(numbers, dims):
    """A list of one number stands for all dims."""
    return list(numbers) * (dims if len(numbers) == 1 else 1)


@row("aten.convolution.default")
def convolution(
    call, x, w, bias, stride, padding, dilation, transposed, output_padding, groups
):  # fmt: skip
    if not x.dtype.is_floating_point:
        raise call.error(f"a convolution of {x.dtype} has no counterpart; cast to a float")
    b, dims = call.b, x.rank - 2
    window = Window(*(_per_dim(n, dims) for n in (stride, padding, dilation)), groups)
    if transposed:
        y = b.convolution_input_gradient(_whole(b, window, x, w, call.shape), w, call.shape,
                                         **window.attrs())  # fmt: skip
    else:
        y = b.convolution(x, w, **window.attrs())
    if bias is None:
        return y
    return b.pointwise("add", y, b.reshape(bias, (*bias.shape, *[1] * dims)))


def _whole(b, window, x, w, shape):
    """x of a transposed convolution to this shape, with zeros where the output padding reaches a
    stride."""
    extents = window.out_extents(shape[2:], w.shape[2:])
    more = [0, 0, *(n - m for n, m in zip(extents, x.shape[2:], strict=True))]
    return b.pad(x, [0] * x.rank, more, 0)


@row("aten.convolution_backward.default")
def convolution_backward(
    call, dy, x, w, bias_sizes, stride, padding, dilation, transposed, output_padding, groups, mask
):
    """(dx, dw, db), None where the mask is False. output_padding only lengthens dy."""
    dims = x.rank - 2
    window = Window(*(_per_dim(n, dims) for n in (stride, padding, dilation)), groups)
    gradients = _transposed if transposed else _plain
    dx, dw = gradients(call, window, dy, x, w, mask)
    others = [a for a in range(dy.rank) if a != 1]
    return dx, dw, call.b.reduce("sum", dy, others) if mask[2] else None


def _plain(call, window, dy, x, w, mask):
    b = call.b
    dy_is_rows, x_is_rows = _is_rows(call, 0), _is_rows(call, 1)
    matmuls = call.matmul_gradients if window.is_pointwise(w) and dy_is_rows else ()
    dx = dw = None
    if mask[0] and "input" in matmuls:
        matrix = b.reshape(w, w.shape[:2])
        dx = _of_pixel_rows(b, b.matmul(_pixel_rows(b, dy), matrix), x.shape)
    elif mask[0]:
        dx = b.convolution_input_gradient(dy, w, x.shape, **window.attrs())
    if mask[1] and "weight" in matmuls and x_is_rows:
        columns = b.permute(_pixel_rows(b, dy), (1, 0))
        dw = b.reshape(b.matmul(columns, _pixel_rows(b, x)), w.shape)
    elif mask[1]:
        dw = b.convolution_weight_gradient(dy, x, w.shape, **window.attrs())
    return dx, dw


def _transposed(call, window, dy, x, w, mask):
    """A convolution over dy has as many pixels as x, or more where the output padding reaches a
    stride: those are cut from dx, and x is 0 there for dw."""
    b = call.b
    dx = dw = None
    if mask[0]:
        dx = b.convolution(dy, w, **window.attrs())
        for axis in range(2, x.rank):
            dx = b.slice(dx, axis, 0, x.shape[axis])
    if mask[1]:
        whole = _whole(b, window, x, w, dy.shape)
        dw = b.convolution_weight_gradient(whole, dy, w.shape, **window.attrs())
    return dx, dw


# --- one matrix a pixel --------------------------------------------------------------------------
def _is_rows(call, argument):
    """Whether the recorded argument is a matrix of pixels and channels as it lies in memory."""
    tensor = call.recorded(argument)
    return math.prod(tensor.shape[2:]) == 1 or tensor.stride(1) == 1


def _pixel_rows(b, x):
    """[N, C, spatial..] as [N spatial.., C]."""
    if math.prod(x.shape[2:]) > 1:
        x = b.permute(x, (0, *range(2, x.rank), 1))
        return b.reshape(x, (math.prod(x.shape[:-1]), x.shape[-1]))
    return b.reshape(x, x.shape[:2])


def _of_pixel_rows(b, rows, shape):
    if math.prod(shape[2:]) == 1:
        return b.reshape(rows, shape)
    pixels = b.reshape(rows, (shape[0], *shape[2:], shape[1]))
    return b.permute(pixels, (0, len(shape) - 1, *range(1, len(shape) - 1)))
