"""Rows of the table for functions that other pointwise ops make up, computed in the compute type and
rounded once."""

import functools
import math

import torch

from retrograd import dtypes
from retrograd.aten_table import axis_of, common_dtype, compare, convert, row

_COMPARES = ("eq", "ne", "lt", "le", "gt", "ge")


class Formula:
    """Pointwise ops by name on Refs and numbers of one type: Formula(b, dtype).mul(x, 0.5)."""

    def __init__(self, b, dtype):
        self.b, self.dtype = b, dtype

    def __getattr__(self, op):
        def apply(*operands):
            operands = (convert(self.b, o, self.dtype) for o in operands)
            return self.b.pointwise(op, *operands, dtype=torch.bool if op in _COMPARES else None)

        return apply

    def where(self, condition, x, y):
        return self.b.pointwise("where", condition, x, y)


def formula(*names):
    """Registers function(f, *operands) for these ops: the operands promoted to a floating type."""

    def register(function):
        row(*names)(functools.partial(applied, function))
        return function

    return register


def applied(function, call, *operands):
    """What function(f, *operands) makes of the operands, for a row that knows more of them."""
    dtype = common_dtype(*operands)
    dtype = dtype if dtype.is_floating_point else torch.get_default_dtype()
    compute = dtypes.compute_dtype(dtype)
    operands = [convert(call.b, o, compute) for o in operands]
    return call.b.cast(function(Formula(call.b, compute), *operands), dtype)


@formula("aten.log10.default")
def log10(f, x):
    return f.mul(f.log(x), 1 / math.log(10))


@formula("aten.expm1.default")
def expm1(f, x):
    """tanh(x / 2) (exp(x) + 1), which loses no digits near zero."""
    return f.mul(f.tanh(f.mul(x, 0.5)), f.add(f.exp(x), 1))


@formula("aten.sinh.default")
def sinh(f, x):
    """Half of (e^x - 1) - (e^-x - 1) near zero; elsewhere without e^x, which may be too large."""
    size = f.abs(x)
    near = f.mul(0.5, f.sub(expm1(f, x), expm1(f, f.neg(x))))
    far = f.sub(f.exp(f.sub(size, math.log(2))), f.mul(0.5, f.exp(f.neg(size))))
    return f.where(f.gt(size, 1), f.mul(f.sign(x), far), near)


@formula("aten.cosh.default")
def cosh(f, x):
    large = f.exp(f.sub(f.abs(x), math.log(2)))
    return f.add(large, f.mul(0.5, f.exp(f.neg(f.abs(x)))))


@formula("aten.tan.default")
def tan(f, x):
    return f.div(f.sin(x), f.cos(x))


@formula("aten.asinh.default")
def asinh(f, x):
    """log(|x| + sqrt(x^2 + 1)) with the sign of x, as a log1p."""
    size = f.abs(x)
    root = f.sqrt(f.fma(size, size, 1))
    near = f.log1p(f.add(size, f.div(f.mul(size, size), f.add(root, 1))))
    far = f.add(f.log(size), math.log(2))
    return f.mul(f.sign(x), f.where(f.gt(size, 1e8), far, near))


@formula("aten.acosh.default")
def acosh(f, x):
    less = f.sub(x, 1)
    return f.log1p(f.add(less, f.sqrt(f.mul(less, f.add(x, 1)))))


@formula("aten.atanh.default")
def atanh(f, x):
    return f.mul(0.5, f.log1p(f.div(f.mul(2, x), f.sub(1, x))))


@formula("aten.hypot.default")
def hypot(f, x, y):
    """Scaled by the larger one, so that no square overflows."""
    x, y = f.abs(x), f.abs(y)
    large, small = f.maximum(x, y), f.minimum(x, y)
    ratio = f.div(small, large)
    size = f.mul(large, f.sqrt(f.fma(ratio, ratio, 1)))
    return f.where(f.eq(large, small), f.mul(large, math.sqrt(2)), size)


# Of the inverse error function, the highest power first: M. Giles, "Approximating the erfinv function"
# (GPU Computing Gems, Jade Edition, 2011), to 3e-7.
_ERFINV_MIDDLE = (2.81022636e-08, 3.43273939e-07, -3.5233877e-06, -4.39150654e-06, 0.00021858087,
                  -0.00125372503, -0.00417768164, 0.246640727, 1.50140941)  # fmt: skip
_ERFINV_TAILS = (-0.000200214257, 0.000100950558, 0.00134934322, -0.00367342844, 0.00573950773,
                 -0.0076224613, 0.00943887047, 1.00167406, 2.83297682)  # fmt: skip


@formula("aten.erfinv.default")
def erfinv(f, x):
    """A polynomial of log(1 - x^2); in fp64 two of Newton's steps behind it."""
    w = f.neg(f.log(f.mul(f.sub(1, x), f.add(1, x))))
    middle = _polynomial(f, f.sub(w, 2.5), _ERFINV_MIDDLE)
    tails = _polynomial(f, f.sub(f.sqrt(f.maximum(w, 5)), 3), _ERFINV_TAILS)
    y = f.mul(f.where(f.lt(w, 5), middle, tails), x)
    for _ in range(2 if f.dtype == torch.float64 else 0):
        slope = f.mul(2 / math.sqrt(math.pi), f.exp(f.neg(f.mul(y, y))))
        y = f.sub(y, f.div(f.sub(f.erf(y), x), slope))
    return f.where(f.eq(f.abs(x), 1), f.mul(x, math.inf), y)


# Of the arc tangent from 0 to tan(pi / 8), the highest power first, of z = x^2: S. Moshier's Cephes 2.8,
# atanf.c (to 1.7e-7) and atan.c (to 1.8e-16: x + x z P(z) / Q(z)).
_ATAN_SINGLE = (8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1)
_ATAN_P = (-8.750608600031904122785e-1, -1.615753718733365076637e1, -7.500855792314704667340e1,
           -1.228866684490136173410e2, -6.485021904942025371773e1)  # fmt: skip
_ATAN_Q = (1.0, 2.485846490142306297962e1, 1.650270098316988542046e2, 4.328810604912902668951e2,
           4.853903996359136964868e2, 1.945506571482613964425e2)  # fmt: skip


def _atan_of_ratio(f, y, x):
    """The angle of (x, y) from the x axis, both at least 0 and not both 0, from 0 to pi / 2: that of
    the point turned by pi / 4 or pi / 2 towards the axis."""
    far = f.gt(y, f.mul(x, math.tan(3 * math.pi / 8)))
    middle = f.gt(y, f.mul(x, math.tan(math.pi / 8)))
    above = f.where(far, f.neg(x), f.where(middle, f.sub(y, x), y))
    below = f.where(far, y, f.where(middle, f.add(y, x), x))
    turned = f.where(far, _like(f, math.pi / 2),
                     f.where(middle, _like(f, math.pi / 4), _like(f, 0)))  # fmt: skip
    t = f.div(above, below)
    z = f.mul(t, t)
    if f.dtype == torch.float64:
        bent = f.div(_polynomial(f, z, _ATAN_P), _polynomial(f, z, _ATAN_Q))
    else:
        bent = _polynomial(f, z, _ATAN_SINGLE)
    return f.add(turned, f.fma(f.mul(t, z), bent, t))


@formula("aten.atan.default")
def atan(f, x):
    angle = _atan_of_ratio(f, f.abs(x), _like(f, 1))
    return f.mul(f.sign(x), f.where(f.eq(f.abs(x), math.inf), _like(f, math.pi / 2), angle))


@formula("aten.asin.default")
def asin(f, x):
    size = f.abs(x)
    return f.mul(f.sign(x), _atan_of_ratio(f, size, f.sqrt(f.mul(f.sub(1, size), f.add(1, size)))))


@formula("aten.acos.default")
def acos(f, x):
    """Twice the angle of the half, which loses no digits near 1."""
    return f.mul(2, _atan_of_ratio(f, f.sqrt(f.sub(1, x)), f.sqrt(f.add(1, x))))


@row("aten.atan2.default")
def atan2(call, y, x):
    """By quadrants; both operands are divided by the larger one where they are infinite, and by 4 where
    one is large, as their sum may be infinite."""
    return applied(lambda f, y, x: _angle(call, f, y, x), call, y, x)


def _angle(call, f, y, x):
    endless = f.eq(f.maximum(f.abs(x), f.abs(y)), math.inf)
    near = lambda v: f.where(endless, f.where(f.eq(f.abs(v), math.inf), _like(f, 1), _like(f, 0)), f.abs(v))
    large = f.gt(f.maximum(f.abs(x), f.abs(y)), 1)
    smaller = lambda v: f.where(large, f.mul(v, 0.25), v)
    rise, run = smaller(near(y)), smaller(near(x))
    nowhere = f.eq(f.maximum(rise, run), 0)
    angle = f.where(nowhere, _like(f, 0), _atan_of_ratio(f, rise, f.where(nowhere, _like(f, 1), run)))
    angle = f.where(negative(call, x), f.sub(math.pi, angle), angle)
    return f.where(negative(call, y), f.neg(angle), angle)


def _like(f, value):
    return convert(f.b, value, f.dtype)


def _polynomial(f, x, coefficients):
    total = coefficients[0]
    for c in coefficients[1:]:
        total = f.fma(x, total, c)
    return total


@row("aten.glu.default")
def glu(call, x, axis=-1):
    b, axis = call.b, axis_of(x, axis)
    half = x.shape[axis] // 2
    first, second = (b.slice(x, axis, i * half, (i + 1) * half) for i in (0, 1))
    gate = b.pointwise("sigmoid", b.cast(second, dtypes.compute_dtype(x.dtype)))
    return b.cast(b.pointwise("mul", b.cast(first, gate.dtype), gate), x.dtype)


@row("aten.softshrink_backward.default", "aten.hardshrink_backward.default")
def shrink_backward(call, dy, x, threshold):
    """0 from -threshold to threshold, and dy outside."""
    b = call.b
    low, high = compare(call, "ge", x, -threshold), compare(call, "le", x, threshold)
    inside = b.pointwise("logical_and", low, high)
    return b.pointwise("where", inside, b.full(0, dy.dtype), dy)


@row("aten.copysign.Tensor", "aten.copysign.Scalar")
def copysign(call, size, sign):
    """A sign of -0 counts: its reciprocal is less than 0."""
    b = call.b
    dtype = common_dtype(size, sign)
    dtype = dtype if dtype.is_floating_point else torch.get_default_dtype()
    size = b.pointwise("abs", convert(b, size, dtype))
    below = negative(call, convert(b, sign, dtype))
    return b.pointwise("where", below, b.pointwise("neg", size), size)


@row("aten.signbit.default")
def signbit(call, x):
    return negative(call, x) if x.dtype.is_floating_point else compare(call, "lt", x, 0)


def negative(call, x):
    """Whether x, floating, is below 0 or -0."""
    b = call.b
    zero = compare(call, "lt", b.pointwise("reciprocal", x), 0)
    return b.pointwise("logical_or", compare(call, "lt", x, 0),
                       b.pointwise("logical_and", compare(call, "eq", x, 0), zero))  # fmt: skip
