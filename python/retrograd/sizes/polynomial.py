"""Polynomials with integer coefficients over numbered atoms.

A polynomial is a dict from monomials to coefficients other than 0. A monomial is the ascending tuple
of its atoms' numbers, in which one may occur again; () is that of the constant.
"""


def constant(number):
    return {(): number} if number else {}


def is_constant(polynomial):
    return all(not monomial for monomial in polynomial)


def key(polynomial):
    """Equal for equal polynomials, and hashable."""
    return tuple(sorted(polynomial.items()))


def add(a, b, scale=1):
    """a + scale * b."""
    total = dict(a)
    for monomial, coefficient in b.items():
        total[monomial] = total.get(monomial, 0) + scale * coefficient
        if not total[monomial]:
            del total[monomial]
    return total


def multiply(a, b):
    total = {}
    for left, m in a.items():
        for right, n in b.items():
            monomial = tuple(sorted(left + right))
            total[monomial] = total.get(monomial, 0) + m * n
    return {monomial: n for monomial, n in total.items() if n}


def exact_quotient(a, b):
    """q with q * b == a, or None if no polynomial with integer coefficients is one. b is not 0."""
    lead = _leading(b)
    quotient, rest = {}, a
    while rest:
        monomial = _leading(rest)
        left = _without(monomial, lead)
        if left is None or rest[monomial] % b[lead]:
            return None
        term = {left: rest[monomial] // b[lead]}
        quotient = add(quotient, term)
        rest = add(rest, multiply(term, b), -1)
    return quotient


def _leading(polynomial):
    """The greatest monomial of an order that products keep."""
    return max(polynomial, key=lambda monomial: (len(monomial), [-atom for atom in monomial]))


def _without(monomial, part):
    """The monomial divided by `part`; None where that is no monomial."""
    left = list(monomial)
    for atom in part:
        if atom not in left:
            return None
        left.remove(atom)
    return tuple(left)
