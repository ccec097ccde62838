"""What a graph's sizes are made of, and what has been taken for granted about them."""

import contextlib
import dataclasses
import math

from retrograd.errors import ExportError
from retrograd.sizes import polynomial
from retrograd.sizes.size import Quotient, Size, as_polynomial

UNBOUNDED = 2**63 - 1  # a symbol's max where it has none

# SizeAtomKind, SizeRelation and SizeField
_SYMBOL, _FLOOR_DIV, _MAXIMUM = 1, 2, 4
ZERO, NOT_ZERO, NOT_NEGATIVE = 1, 2, 3
DIM, ATTR, STRIDE, OUTPUT_STRIDE = 1, 2, 3, 4


@dataclasses.dataclass
class _Atom:
    """A symbol, or a function of two polynomials. `value`: at the hints. `least`, `most`: what bounds it;
    infinities where nothing does."""

    kind: int
    symbol: int
    left: dict
    right: dict
    value: int
    least: float
    most: float


class SizeTable:
    """Symbols, the atoms that are made of them, and facts: what comparisons found at the hints, which
    must hold wherever the graph is bound. A comparison that every value of the symbols decides alike
    leaves no fact."""

    def __init__(self):
        self.symbols = []  # (name, min, max, multiple_of, hint)
        self.facts = {}  # (relation, key of a polynomial) -> for whom it was assumed
        self._for = ""
        self._atoms, self._numbers = [], {}
        self._pinned = False

    def symbol(self, name, hint, least=0, most=UNBOUNDED, multiple_of=1):
        """A Size of a new symbol."""
        if not least <= hint <= most or hint % multiple_of:
            raise ExportError(
                f"{hint} is no value of the size {name}: {least} to {most}, a multiple of {multiple_of}"
            )
        self.symbols.append((name, least, most, multiple_of, hint))
        bound = math.inf if most >= UNBOUNDED else most
        atom = _Atom(_SYMBOL, len(self.symbols) - 1, {}, {}, hint, least, bound)
        number = self._number(("symbol", name), atom)
        if self._pinned:
            self._pin(number)
        return Size(self, {(number,): 1})

    def narrow(self, name, least, most):
        """Of a symbol that is known: it lies within these bounds, too."""
        for number, atom in enumerate(self._atoms):
            if atom.kind != _SYMBOL or self.symbols[atom.symbol][0] != name:
                continue
            _, low, high, multiple_of, hint = self.symbols[atom.symbol]
            low, high = min(max(low, least), hint), max(min(high, most), hint)
            self.symbols[atom.symbol] = name, low, high, multiple_of, hint
            bound = math.inf if high >= UNBOUNDED else high
            self._atoms[number] = dataclasses.replace(atom, least=low, most=bound)

    def floor_div(self, left, right):
        """The atom of left / right, rounded down, of polynomials."""
        return self._function(_FLOOR_DIV, left, right)

    def maximum(self, left, right):
        return self._function(_MAXIMUM, left, right)

    def _function(self, kind, left, right):
        a, b = self.value(left), self.value(right)
        value = a // b if kind == _FLOOR_DIV else max(a, b)
        (low, high), (other_low, other_high) = self.bounds(left), self.bounds(right)
        least, most = -math.inf, math.inf
        if kind == _MAXIMUM:
            least, most = max(low, other_low), max(high, other_high)
        elif polynomial.is_constant(right) and b > 0:
            least, most = _floor(low, b), _floor(high, b)
        atom = _Atom(kind, 0, left, right, value, least, most)
        number = self._number((kind, polynomial.key(left), polynomial.key(right)), atom)
        return {(number,): 1}

    def _number(self, key, atom):
        if key not in self._numbers:
            self._numbers[key] = len(self._atoms)
            self._atoms.append(atom)
        return self._numbers[key]

    def value(self, terms):
        """Of a polynomial at the hints."""
        return sum(n * math.prod(self._atoms[a].value for a in m) for m, n in terms.items())

    def bounds(self, terms):
        """(least, most) that interval arithmetic knows of a polynomial; infinities where nothing."""
        least = most = 0
        for monomial, coefficient in terms.items():
            low = high = 1
            for number in monomial:
                atom = self._atoms[number]
                if atom.least < 0:
                    low, high = -math.inf, math.inf
                    break
                low, high = low * atom.least, _product(high, atom.most)
            if coefficient < 0:
                low, high = high, low
            least += _product(low, coefficient)
            most += _product(high, coefficient)
        return least, most

    @contextlib.contextmanager
    def assuming_for(self, whom):
        """Facts inside are assumed for this op."""
        before, self._for = self._for, whom
        try:
            yield
        finally:
            self._for = before

    def is_zero(self, terms):
        """Whether the polynomial is 0 at the hints, which becomes a fact."""
        least, most = self.bounds(terms)
        if least > 0 or most < 0:
            return False
        zero = self.value(terms) == 0
        self._assume(ZERO if zero else NOT_ZERO, terms)
        return zero

    def is_not_negative(self, terms):
        """Whether the polynomial is at least 0 at the hints, which becomes a fact."""
        least, most = self.bounds(terms)
        if least >= 0:
            return True
        if most < 0:
            return False
        holds = self.value(terms) >= 0
        # Of integers: not p >= 0 is -p - 1 >= 0.
        opposite = polynomial.add(polynomial.constant(-1), terms, -1)
        self._assume(NOT_NEGATIVE, terms if holds else opposite)
        return holds

    def _assume(self, relation, terms):
        if relation != NOT_NEGATIVE and terms:  # p = 0 and -p = 0 are one fact
            terms = terms if terms[max(terms)] > 0 else polynomial.add({}, terms, -1)
        self.facts.setdefault((relation, polynomial.key(terms)), self._for)

    def pin_all(self):
        """Every symbol is its hint, those that are made later, too."""
        self._pinned = True
        for number, atom in enumerate(self._atoms):
            if atom.kind == _SYMBOL:
                self._pin(number)

    def _pin(self, number):
        value = polynomial.constant(self._atoms[number].value)
        self.is_zero(polynomial.add({(number,): 1}, value, -1))

    def write(self, graph, places):
        """Writes the sizes into a schema.Graph. places: (field, owner, part, element, Size or Quotient)
        of numbers that the graph holds at the hints."""
        _Writer(graph.sizes, self).write(self._atoms, places)


# What readers take (graph/proto/sizes_read.cc).
_MOST_SYMBOLS = 1024
_MOST_PARTS = 2**18  # symbols, atoms, polynomials, facts and places together


class _Writer:
    def __init__(self, sizes, table):
        self.sizes, self.table = sizes, table
        self.polynomials = {}  # key -> place

    def write(self, atoms, places):
        for name, least, most, multiple_of, hint in self.table.symbols:
            self.sizes.symbols.add(
                name=name, min=least, max=most, multiple_of=multiple_of, hint=hint
            )
        for atom in atoms:
            written = self.sizes.atoms.add(kind=atom.kind, symbol=atom.symbol)
            _write_terms(written.left, atom.left)
            _write_terms(written.right, atom.right)
        for (relation, key), whom in self.table.facts.items():
            self.sizes.facts.add(
                relation=relation, polynomial=self.place(dict(key)), assumed_for=whom
            )
        for *place, size in sorted(places, key=lambda p: (p[0] == OUTPUT_STRIDE, p[1], p[0], *p[2:4])):
            field, owner, part, element = place
            written = self.sizes.places.add(field=field, owner=owner, part=part, element=element)
            if isinstance(size, Quotient):
                written.polynomial = self.place(as_polynomial(size.number))
                if not _is_one(size.divisor):
                    written.divisor = 1 + self.place(as_polynomial(size.divisor))
            else:
                written.polynomial = self.place(size.terms)
        self._check()

    def _check(self):
        sizes = self.sizes
        lists = sizes.symbols, sizes.atoms, sizes.polynomials, sizes.facts, sizes.places
        parts = sum(map(len, lists))
        if len(sizes.symbols) > _MOST_SYMBOLS or parts > _MOST_PARTS:
            raise ExportError(
                f"the graph has {len(sizes.symbols)} sizes that vary, which {parts} parts say where; "
                f"{_MOST_SYMBOLS} and {_MOST_PARTS} are the most: let fewer vary"
            )

    def place(self, terms):
        key = polynomial.key(terms)
        if key not in self.polynomials:
            self.polynomials[key] = len(self.polynomials)
            _write_terms(self.sizes.polynomials.add(), terms)
        return self.polynomials[key]


def _is_one(number):
    return isinstance(number, int) and number == 1


def _write_terms(message, terms):
    for monomial, coefficient in sorted(terms.items(), key=lambda term: (not term[0], term)):
        if not -(2**63) <= coefficient < 2**63:
            raise ExportError(f"a size has the coefficient {coefficient}, which is no 64-bit integer")
        message.terms.add(coefficient=coefficient, atoms=monomial)


def _product(a, b):
    return 0 if a == 0 or b == 0 else a * b


def _floor(bound, divisor):
    return bound if math.isinf(bound) else bound // divisor
