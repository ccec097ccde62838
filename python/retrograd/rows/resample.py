"""Rows of the table for resampling along each spatial axis on its own: adaptive averages, upsampling,
edges that pads repeat.

Along one axis y = W x, with W [outputs, inputs], which is made of positions by pointwise ops; the
gradient is dx = W^T dy. Where every output or input has whole pixels, it is views and a sum instead.
"""

import math

import torch

from retrograd import dtypes
from retrograd.aten_table import compare, row
from retrograd.rows.pool import cut


def _positions(b, outputs, inputs, dtype):
    """The outputs' numbers as [outputs, 1] and the inputs' as [1, inputs]."""
    return b.iota(dtype, (outputs, 1), 0), b.iota(dtype, (1, inputs), 1)


def _along(b, x, axis, matrix):
    """matrix [to, from] applied to x along the axis."""
    perm = [a for a in range(x.rank) if a != axis] + [axis]
    moved = b.permute(x, perm)
    rows = b.reshape(moved, (math.prod(moved.shape[:-1]), moved.shape[-1]))
    product = b.matmul(rows, b.permute(matrix, (1, 0)))
    product = b.reshape(product, (*moved.shape[:-1], matrix.shape[0]))
    return b.permute(product, sorted(range(x.rank), key=lambda i: perm[i]))


def _spatial(call, x, matrices, first):
    """Each matrix applied along its axis, the first of which is `first`, rounded once."""
    b, dtype = call.b, x.dtype
    x = b.cast(x, dtypes.compute_dtype(dtype))
    for i, matrix in enumerate(matrices):
        x = _along(b, x, first + i, b.cast(matrix, x.dtype))
    return b.cast(x, dtype)


def _transposed(b, matrices):
    return [b.permute(matrix, (1, 0)) for matrix in matrices]


# --- adaptive averages ---------------------------------------------------------------------------
def _average_matrix(call, outputs, inputs):
    """1 / length from floor(o inputs / outputs) to behind ceil((o + 1) inputs / outputs)."""
    b, wide = call.b, torch.float64
    o, i = _positions(b, outputs, inputs, wide)
    ratio = lambda x: b.pointwise("div", b.pointwise("mul", x, b.full(inputs, wide)),  # noqa: E731
                                  b.full(outputs, wide))  # fmt: skip
    start = b.pointwise("floor", ratio(o))
    behind = b.pointwise("add", o, b.full(1, wide))
    stop = b.pointwise("neg", b.pointwise("floor", b.pointwise("neg", ratio(behind))))
    inside = b.pointwise("logical_and", compare(call, "ge", i, start), compare(call, "lt", i, stop))
    share = b.pointwise("reciprocal", b.pointwise("sub", stop, start))
    return b.pointwise("where", inside, share, b.full(0, wide))


@row("aten._adaptive_avg_pool2d.default", "aten._adaptive_avg_pool3d.default")
def adaptive_average(call, x, extents):
    first = x.rank - len(extents)
    matrices = [_average_matrix(call, n, m) for n, m in zip(extents, x.shape[first:], strict=True)]
    return _spatial(call, x, matrices, first)


@row("aten._adaptive_avg_pool2d_backward.default", "aten._adaptive_avg_pool3d_backward.default")
def adaptive_average_backward(call, dy, x):
    b = call.b
    dims = 2 if "2d" in call.name else 3
    first = x.rank - dims
    pairs = list(zip(dy.shape[first:], x.shape[first:], strict=True))
    if all(outputs and inputs % outputs == 0 for outputs, inputs in pairs):
        ratios = [inputs // outputs for outputs, inputs in pairs]
        dy_share = b.cast(dy, dtypes.compute_dtype(dy.dtype))
        dy_share = b.pointwise("div", dy_share, b.full(math.prod(ratios), dy_share.dtype))
        return b.cast(_repeated(b, dy_share, ratios, first), dy.dtype)
    return _spatial(call, dy, _transposed(b, [_average_matrix(call, *p) for p in pairs]), first)


def _repeated(b, x, ratios, first):
    """Every element as often as the ratio of its axis says, in a row."""
    lead = x.shape[:first]
    apart = (*lead, *(n for extent in x.shape[first:] for n in (extent, 1)))
    pairs = zip(x.shape[first:], ratios, strict=True)
    spread = (*lead, *(n for pair in pairs for n in pair))
    whole = (*lead, *(n * r for n, r in zip(x.shape[first:], ratios, strict=True)))
    return b.reshape(b.expand(b.reshape(x, apart), spread), whole)


# --- upsampling ----------------------------------------------------------------------------------
def _scale(outputs, inputs, given, align_corners=False):
    """How many inputs an output is wide."""
    if align_corners:
        return (inputs - 1) / (outputs - 1) if outputs > 1 else 0.0
    return 1 / given if given else inputs / outputs


def _centres(b, o, scale, align_corners):
    """Where the outputs lie among the inputs."""
    if align_corners:
        return b.pointwise("mul", o, b.full(scale, o.dtype))
    half = b.full(0.5, o.dtype)
    centre = b.pointwise("mul", b.pointwise("add", o, half), b.full(scale, o.dtype))
    return b.pointwise("sub", centre, half)


def _nearest_matrix(call, outputs, inputs, given, shift):
    """1 at floor((o + shift) scale), which PyTorch computes in fp32."""
    b, dtype = call.b, torch.float32
    o, i = _positions(b, outputs, inputs, dtype)
    at = b.pointwise("add", o, b.full(shift, dtype)) if shift else o
    at = b.pointwise("mul", at, b.full(_scale(outputs, inputs, given), dtype))
    at = b.pointwise("minimum", b.pointwise("floor", at), b.full(inputs - 1, dtype))
    return b.pointwise("eq", i, at, dtype=torch.bool)


def _clamped(b, x, inputs):
    x = b.pointwise("maximum", x, b.full(0, x.dtype))
    return b.pointwise("minimum", x, b.full(inputs - 1, x.dtype))


def _weighted(call, i, taps):
    """The sum of the taps (place, weight) as a matrix."""
    b, total = call.b, None
    for place, weight in taps:
        here = b.pointwise("eq", i, place, dtype=torch.bool)
        term = b.pointwise("where", here, weight, b.full(0, i.dtype))
        total = term if total is None else b.pointwise("add", total, term)
    return total


def _linear_matrix(call, outputs, inputs, given, align_corners, dtype):
    b = call.b
    o, i = _positions(b, outputs, inputs, dtype)
    at = _centres(b, o, _scale(outputs, inputs, given, align_corners), align_corners)
    at = b.pointwise("maximum", at, b.full(0, dtype))
    first = b.pointwise("floor", at)
    second = b.pointwise("minimum", b.pointwise("add", first, b.full(1, dtype)),
                         b.full(inputs - 1, dtype))  # fmt: skip
    right = b.pointwise("sub", at, first)
    left = b.pointwise("sub", b.full(1, dtype), right)
    return _weighted(call, i, [(first, left), (second, right)])


def _cubic(b, x, a):
    """The kernel of cubic convolution at |x| <= 2."""
    x = b.pointwise("abs", x)
    poly = lambda *c: _polynomial(b, x, c)  # noqa: E731
    near, far = poly(a + 2, -(a + 3), 0, 1), poly(a, -5 * a, 8 * a, -4 * a)
    inner = b.pointwise("le", x, b.full(1, x.dtype), dtype=torch.bool)
    outer = b.pointwise("lt", x, b.full(2, x.dtype), dtype=torch.bool)
    far = b.pointwise("where", outer, far, b.full(0, x.dtype))
    return b.pointwise("where", inner, near, far)


def _polynomial(b, x, coefficients):
    total = b.full(coefficients[0], x.dtype)
    for c in coefficients[1:]:
        total = b.pointwise("fma", total, x, b.full(c, x.dtype))
    return total


def _cubic_matrix(call, outputs, inputs, given, align_corners, dtype):
    b = call.b
    o, i = _positions(b, outputs, inputs, dtype)
    at = _centres(b, o, _scale(outputs, inputs, given, align_corners), align_corners)
    below = b.pointwise("floor", at)
    left = b.pointwise("sub", at, below)
    taps = []
    for k in (-1, 0, 1, 2):
        place = _clamped(b, b.pointwise("add", below, b.full(k, dtype)), inputs)
        taps.append((place, _cubic(b, b.pointwise("sub", left, b.full(k, dtype)), -0.75)))
    return _weighted(call, i, taps)


def _antialias_matrix(call, outputs, inputs, given, align_corners, dtype, cubic):
    """The filter stretched to the outputs' width where that is more than an input's, normalized."""
    b = call.b
    o, i = _positions(b, outputs, inputs, dtype)
    scale = _scale(outputs, inputs, given, align_corners)
    width = max(scale, 1.0)
    support = (2 if cubic else 1) * width
    half = b.full(0.5, dtype)
    centre = b.pointwise("mul", b.pointwise("add", o, half), b.full(scale, dtype))
    low = b.pointwise("floor", b.pointwise("add", centre, b.full(0.5 - support, dtype)))
    high = b.pointwise("floor", b.pointwise("add", centre, b.full(0.5 + support, dtype)))
    inside = b.pointwise("logical_and", compare(call, "ge", i, low), compare(call, "lt", i, high))
    away = b.pointwise("add", b.pointwise("sub", i, centre), half)
    away = b.pointwise("mul", away, b.full(1 / width, dtype))
    if cubic:
        weight = _cubic(b, away, -0.5)
    else:
        weight = b.pointwise("sub", b.full(1, dtype), b.pointwise("abs", away))
        weight = b.pointwise("maximum", weight, b.full(0, dtype))
    weight = b.pointwise("where", inside, weight, b.full(0, dtype))
    return b.pointwise("div", weight, b.reduce("sum", weight, [1], True))


def _gradient(call, dy, input_size, matrix, scales):
    """dx of input_size, by matrix(outputs, inputs, scale) along each spatial axis."""
    pairs = zip(dy.shape[2:], input_size[2:], scales, strict=True)
    return _spatial(call, dy, _transposed(call.b, [matrix(*p) for p in pairs]), 2)


def _resampled(call, x, output_size, matrix, scales):
    """The forward: the same matrices."""
    pairs = zip(output_size, x.shape[2:], scales or [None] * len(output_size), strict=True)
    return _spatial(call, x, [matrix(*p) for p in pairs], 2)


def _nearest(shift):
    def backward(call, dy, output_size, input_size, *scales):
        b = call.b
        scales = scales or [None] * len(output_size)
        pairs = list(zip(dy.shape[2:], input_size[2:], scales, strict=True))
        if all(n % m == 0 and s in (None, n / m) for n, m, s in pairs):
            ratios = [n // m for n, m, _ in pairs]
            apart = (*dy.shape[:2], *(v for (_, m, _), r in zip(pairs, ratios) for v in (m, r)))
            lying = b.reshape(b.cast(dy, dtypes.compute_dtype(dy.dtype)), apart)
            return b.cast(b.reduce("sum", lying, range(3, lying.rank, 2)), dy.dtype)
        return _gradient(call, dy, input_size, lambda *p: _nearest_matrix(call, *p, shift), scales)

    return backward


for _dims in (1, 2, 3):
    row(f"aten.upsample_nearest{_dims}d_backward.default")(_nearest(0))
    row(f"aten._upsample_nearest_exact{_dims}d_backward.default")(_nearest(0.5))


def _smooth(matrix, **options):
    def backward(call, dy, output_size, input_size, align_corners, *scales):
        scales = scales or [None] * len(output_size)
        dtype = dtypes.compute_dtype(dy.dtype)

        def of_axis(outputs, inputs, scale):
            return matrix(call, outputs, inputs, scale, align_corners, dtype, **options)

        return _gradient(call, dy, input_size, of_axis, scales)

    return backward


def _smooth_forward(matrix, **options):
    def forward(call, x, output_size, align_corners, *scales):
        dtype = dtypes.compute_dtype(x.dtype)

        def of_axis(outputs, inputs, scale):
            return matrix(call, outputs, inputs, scale, align_corners, dtype, **options)

        return _resampled(call, x, output_size, of_axis, scales)

    return forward


def _smooth_rows(name, matrix, **options):
    row(f"aten.{name}.default")(_smooth_forward(matrix, **options))
    row(f"aten.{name}_backward.default")(_smooth(matrix, **options))


for _name in ("upsample_linear1d", "upsample_bilinear2d", "upsample_trilinear3d"):
    _smooth_rows(_name, _linear_matrix)
_smooth_rows("upsample_bicubic2d", _cubic_matrix)
_smooth_rows("_upsample_bilinear2d_aa", _antialias_matrix, cubic=False)
_smooth_rows("_upsample_bicubic2d_aa", _antialias_matrix, cubic=True)


# --- repeated edges ------------------------------------------------------------------------------
def _edge_gradient(b, dy, axis, extent, low, high):
    """The pixels' own gradients, and those of all their copies for the first and the last one."""
    dx = cut(b, dy, axis, low, extent, 0)
    for amount, start, place in ((low, 0, 0), (high, dy.shape[axis] - high, extent - 1)):
        if amount > 0:
            copies = b.slice(dy, axis, start, start + amount)
            copies = b.reduce("sum", copies, [axis], True)
            dx = b.pointwise("add", dx, cut(b, copies, axis, -place, extent, 0))
    return dx


@row(*(f"aten.replication_pad{dims}d_backward.default" for dims in (1, 2, 3)))
def replication_pad_backward(call, dy, x, amounts):
    b, dtype = call.b, dy.dtype
    dy = b.cast(dy, dtypes.compute_dtype(dtype))
    for i in range(len(amounts) // 2):
        axis = x.rank - 1 - i
        dy = _edge_gradient(b, dy, axis, x.shape[axis], *amounts[2 * i : 2 * i + 2])
    return b.cast(dy, dtype)


# --- mirrored edges ------------------------------------------------------------------------------
def _mirror_gradient(b, dy, axis, extent, low, high):
    """The pixels' own gradients, and behind each edge those of its mirror images. The edge itself
    is not mirrored: padded by 2, [a, b, c] becomes [c, b, a, b, c, b, a]."""
    dx = cut(b, dy, axis, low, extent, 0)
    for start, stop, place in ((0, low, 1), (low + extent, low + extent + high, extent - 1 - high)):
        if stop > start:
            images = b.flip(b.slice(dy, axis, start, stop), [axis])
            dx = b.pointwise("add", dx, cut(b, images, axis, -place, extent, 0))
    return dx


@row(*(f"aten.reflection_pad{dims}d_backward.default" for dims in (1, 2, 3)))
def reflection_pad_backward(call, dy, x, amounts):
    """Axis by axis, in the dtype of sums; negative amounts cut off, as `cut` does."""
    b, dtype = call.b, dy.dtype
    dy = b.cast(dy, dtypes.compute_dtype(dtype))
    for i in range(len(amounts) // 2):
        axis = x.rank - 1 - i
        dy = _mirror_gradient(b, dy, axis, x.shape[axis], *amounts[2 * i : 2 * i + 2])
    return b.cast(dy, dtype)
