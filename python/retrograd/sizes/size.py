"""Integers that know how they follow from symbols.

A `Size` takes part in arithmetic as the integer that it is at the symbols' hints, and its results are
Sizes, too. What a comparison finds becomes a fact of the table. What needs the very number (`range`,
`int`, a key of a dict) makes the fact that the size is this number. So whoever computes with Sizes takes
the same way at every binding that the facts allow.
"""

import math

from retrograd.sizes import polynomial


def is_symbolic(value):
    """Whether the number follows from symbols."""
    return isinstance(value, (Size, Quotient))


def number_of(value):
    """The number at the hints. It makes no fact: for what is written beside its expression."""
    if isinstance(value, Size):
        return value.table.value(value.terms)
    return number_of(value.number) / number_of(value.divisor) if is_symbolic(value) else value


def key_of(value):
    """Hashable; equal for numbers that are equal at every binding."""
    if isinstance(value, Size):
        return "size", polynomial.key(value.terms)
    if isinstance(value, Quotient):
        return "quotient", key_of(value.number), key_of(value.divisor)
    return value


def identical(a, b):
    """Whether two numbers, or tuples of them, are equal at every binding. It makes no fact."""
    if isinstance(a, (tuple, list)):
        return len(a) == len(b) and all(map(identical, a, b))
    return key_of(a) == key_of(b)


def as_float(value):
    """The number as a float, a Quotient if it follows from symbols."""
    if isinstance(value, Size):
        return Quotient(value, 1)
    return value if isinstance(value, Quotient) else float(value)


def as_polynomial(value):
    """Of an int or a Size."""
    return value.terms if isinstance(value, Size) else polynomial.constant(int(value))


def _size(table, terms):
    """A Size, or an int where no symbol is left."""
    return terms.get((), 0) if polynomial.is_constant(terms) else Size(table, terms)


def _integers(operation):
    """For operators: NotImplemented for what is no integer; of a float, the operator on numbers."""

    def checked(self, other):
        if isinstance(other, float):
            return getattr(float(self), operation.__name__)(other)
        if not isinstance(other, (int, Size)):
            return NotImplemented
        return operation(self, other)

    checked.__name__ = operation.__name__
    return checked


class Size:
    """An integer of a SizeTable: its polynomial has an atom."""

    __slots__ = ("table", "terms")

    def __init__(self, table, terms):
        self.table, self.terms = table, terms

    def __repr__(self):
        return str(number_of(self))

    # --- arithmetic ------------------------------------------------------------------------------
    @_integers
    def __add__(self, other):
        return _size(self.table, polynomial.add(self.terms, as_polynomial(other)))

    @_integers
    def __sub__(self, other):
        return _size(self.table, polynomial.add(self.terms, as_polynomial(other), -1))

    @_integers
    def __rsub__(self, other):
        return _size(self.table, polynomial.add(as_polynomial(other), self.terms, -1))

    @_integers
    def __mul__(self, other):
        return _size(self.table, polynomial.multiply(self.terms, as_polynomial(other)))

    __radd__, __rmul__ = __add__, __mul__

    def __neg__(self):
        return _size(self.table, polynomial.add({}, self.terms, -1))

    def __pos__(self):
        return self

    def __abs__(self):
        return self if self >= 0 else -self

    def __pow__(self, exponent):
        if not isinstance(exponent, int) or exponent < 0:
            return number_of_pinned(self) ** exponent
        result = 1
        for _ in range(exponent):
            result = result * self
        return result

    @_integers
    def __floordiv__(self, other):
        return _floor_div(self.table, self.terms, as_polynomial(other))

    @_integers
    def __rfloordiv__(self, other):
        return _floor_div(self.table, as_polynomial(other), self.terms)

    @_integers
    def __mod__(self, other):
        return self - self // other * other

    @_integers
    def __rmod__(self, other):
        return other - other // self * self

    def __divmod__(self, other):
        return self // other, self % other

    def __truediv__(self, other):
        return _quotient(self, other)

    def __rtruediv__(self, other):
        return _quotient(other, self)

    # --- what becomes a fact ---------------------------------------------------------------------
    def __eq__(self, other):
        if isinstance(other, float) and other.is_integer():
            other = int(other)
        if not isinstance(other, (int, Size)):
            return NotImplemented
        difference = polynomial.add(self.terms, as_polynomial(other), -1)
        return not difference or self.table.is_zero(difference)

    @_integers
    def __ge__(self, other):
        return self.table.is_not_negative(polynomial.add(self.terms, as_polynomial(other), -1))

    @_integers
    def __le__(self, other):
        return self.table.is_not_negative(polynomial.add(as_polynomial(other), self.terms, -1))

    @_integers
    def __gt__(self, other):
        return not self <= other

    @_integers
    def __lt__(self, other):
        return not self >= other

    def __bool__(self):
        return not self.table.is_zero(self.terms)

    def __index__(self):
        return number_of_pinned(self)

    __int__ = __trunc__ = __index__

    def __float__(self):
        return float(number_of_pinned(self))

    def __hash__(self):
        return hash(number_of_pinned(self))


class Quotient:
    """A float: one integer by another, rounded once. Of both, one is a Size, or the divisor is 1."""

    __slots__ = ("number", "divisor")

    def __init__(self, number, divisor):
        self.number, self.divisor = number, divisor

    def __float__(self):
        return int(self.number) / int(self.divisor)

    def __bool__(self):
        return bool(self.number)

    def __repr__(self):
        return str(number_of(self))

    def __neg__(self):
        return Quotient(-self.number, self.divisor)

    def __truediv__(self, other):
        return _quotient(self, other)

    def __rtruediv__(self, other):
        return _quotient(other, self)

    def __hash__(self):
        return hash(float(self))


def _whole(value):
    """The int or Size that a number is without rounding; None of others."""
    if isinstance(value, Quotient):
        return value.number if isinstance(value.divisor, int) and value.divisor == 1 else None
    if isinstance(value, float):
        return int(value) if value.is_integer() and abs(value) <= 2**53 else None
    return value if isinstance(value, (int, Size)) else None


def _quotient(a, b):
    """a / b as floats, rounded once where both are whole; else of the very numbers that they are."""
    number, divisor = _whole(a), _whole(b)
    if number is None or divisor is None:
        return float(a) / float(b)
    if divisor == 0:
        raise ZeroDivisionError("a size is divided by 0")
    exact = polynomial.exact_quotient(as_polynomial(number), as_polynomial(divisor))
    if exact is None:
        return Quotient(number, divisor)
    table = number.table if is_symbolic(number) else divisor.table
    return as_float(_size(table, exact))


def _on_floats(name):
    """An operator that takes the quotient as the very number that it is."""

    def operator(self, other):
        return getattr(float(self), name)(float(other) if is_symbolic(other) else other)

    return operator


for _name in ("add", "radd", "sub", "rsub", "mul", "rmul", "pow", "rpow", "eq", "ne", "lt", "le", "gt",
              "ge"):  # fmt: skip
    setattr(Quotient, f"__{_name}__", _on_floats(f"__{_name}__"))


def maximum(a, b):
    """The larger of ints or Sizes, whichever that is at a binding. It makes no fact."""
    if not is_symbolic(a) and not is_symbolic(b):
        return max(a, b)
    table = a.table if is_symbolic(a) else b.table
    left, right = as_polynomial(a), as_polynomial(b)
    if table.bounds(polynomial.add(left, right, -1))[0] >= 0:
        return a
    if table.bounds(polynomial.add(right, left, -1))[0] >= 0:
        return b
    return Size(table, table.maximum(left, right))


def number_of_pinned(size):
    """The size's number at the hints; that it is this number becomes a fact."""
    number = number_of(size)
    size.table.is_zero(polynomial.add(size.terms, polynomial.constant(number), -1))
    return number


def _floor_div(table, left, right):
    """left / right, rounded down, of polynomials."""
    if polynomial.is_constant(right):
        return _floor_div_by_number(table, left, right.get((), 0))
    if table.is_zero(right):
        raise ZeroDivisionError("a size is divided by 0")
    exact = polynomial.exact_quotient(left, right)
    if exact is not None:
        return _size(table, exact)
    if polynomial.is_constant(left):
        quotient = _small_quotient(table, left, right)
        if quotient is not None:
            return quotient
    return Size(table, table.floor_div(left, right))


def _small_quotient(table, left, right):
    """0 or -1 if that is the quotient at the hints, which becomes a fact: an index by an extent."""
    quotient = table.value(left) // table.value(right)
    if quotient not in (0, -1) or table.value(right) < 0:
        return None
    rest = polynomial.add(left, right, -quotient)
    # The remainder is at least 0, and less than what divides.
    holds = table.is_not_negative(rest) and table.is_not_negative(
        polynomial.add(polynomial.add(right, rest, -1), polynomial.constant(-1))
    )
    return quotient if holds else None


def _floor_div_by_number(table, left, divisor):
    """Multiples of the divisor leave the atom, so that equal quotients have equal polynomials."""
    if divisor == 0:
        raise ZeroDivisionError("a size is divided by 0")
    if divisor < 0:
        return _floor_div_by_number(table, polynomial.add({}, left, -1), -divisor)
    least, most = table.bounds(left)
    if not math.isinf(least) and not math.isinf(most) and least // divisor == most // divisor:
        return least // divisor
    whole = {m: n // divisor for m, n in left.items() if n // divisor}
    rest = {m: n % divisor for m, n in left.items() if n % divisor}
    least, most = table.bounds(rest)
    if least >= 0 and most < divisor:
        return _size(table, whole)
    atom = table.floor_div(rest, polynomial.constant(divisor))
    return _size(table, polynomial.add(whole, atom))
