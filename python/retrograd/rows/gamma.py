"""Rows of the table for derivatives of the logarithm of the gamma function.

Both are moved up to x + 10, where few terms of their asymptotic series are exact in fp64 (Abramowitz
and Stegun, Handbook of Mathematical Functions, 6.3.5, 6.3.18, 6.4.6 and 6.4.12); negative arguments are
reflected (6.3.7, 6.4.7).
"""

import math

from retrograd.aten_table import row
from retrograd.rows.math import applied, formula

_STEPS = 10
# Bernoulli numbers B_2, B_4, ..
_BERNOULLI = (1 / 6, -1 / 30, 1 / 42, -1 / 30, 5 / 66, -691 / 2730, 7 / 6)


@formula("aten.digamma.default")
def digamma(f, x):
    """log(y) - 1 / 2y - sum of B_2k / (2k y^2k) at y = x + 10, less the sum of 1 / (x + i) for i < 10."""
    up = _reflected(f, x)
    y = f.add(up, _STEPS)
    series = _series(f, y, [b / (2 * k + 2) for k, b in enumerate(_BERNOULLI)])
    result = f.sub(f.sub(f.log(y), f.div(0.5, y)), series)
    for i in range(_STEPS):
        result = f.sub(result, f.reciprocal(f.add(up, i)))
    sine, cosine = _sine_and_cosine(f, x)
    below = f.sub(result, f.div(f.mul(math.pi, cosine), sine))
    below = f.where(f.eq(sine, 0), f.div(sine, 0), below)  # NaN at the poles
    pole = f.neg(f.reciprocal(x))
    return f.where(f.eq(x, 0), pole, f.where(f.lt(x, 0), below, result))


@row("aten.polygamma.default")
def polygamma(call, order, x):
    if order > 1:
        raise call.error("derivatives of digamma behind the first have no counterpart")
    return applied(_trigamma if order else digamma, call, x)


def _trigamma(f, x):
    """1 / y + 1 / 2y^2 + sum of B_2k / y^(2k + 1) at y = x + 10, and the sum of 1 / (x + i)^2."""
    up = _reflected(f, x)
    y = f.add(up, _STEPS)
    inverse = f.reciprocal(y)
    series = f.mul(_series(f, y, _BERNOULLI), inverse)
    result = f.add(series, f.mul(inverse, f.add(f.mul(inverse, 0.5), 1)))
    for i in range(_STEPS):
        step = f.reciprocal(f.add(up, i))
        result = f.add(result, f.mul(step, step))
    slope = f.div(math.pi, _sine_and_cosine(f, x)[0])
    return f.where(f.lt(x, 0), f.sub(f.mul(slope, slope), result), result)


def _reflected(f, x):
    """1 - x where x is negative, else x."""
    return f.where(f.lt(x, 0), f.sub(1, x), x)


def _sine_and_cosine(f, x):
    """Of pi x, up to a common sign."""
    angle = f.mul(math.pi, f.sub(x, f.floor(f.add(x, 0.5))))
    angle = f.where(f.eq(x, f.floor(x)), f.mul(x, 0), angle)
    return f.sin(angle), f.cos(angle)


def _series(f, y, coefficients):
    """The sum of c_k / y^(2k) for k from 1 on."""
    inverse = f.reciprocal(f.mul(y, y))
    total = coefficients[-1]
    for c in reversed(coefficients[:-1]):
        total = f.fma(inverse, total, c)
    return f.mul(inverse, total)
