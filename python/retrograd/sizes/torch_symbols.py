"""PyTorch's symbolic integers as Sizes."""

import dataclasses
import operator

import sympy
import torch
from torch.utils._sympy import functions

from retrograd.errors import ExportError
from retrograd.sizes.size import maximum
from retrograd.sizes.table import UNBOUNDED, SizeTable


@dataclasses.dataclass(frozen=True)
class Source:
    """Where a run's inputs show a symbol's value: `dim` of the input, or the input, an integer,
    itself. `stride`: the dim's stride instead of its extent."""

    symbol: str
    input: int
    dim: int | None = None
    stride: bool = False

    def value_in(self, values):
        value = values[self.input]
        if self.dim is None:
            return int(value)
        return value.stride(self.dim) if self.stride else value.shape[self.dim]


class TorchSymbols:
    """Sizes for the expressions of the symbols that a traced graph's inputs show.

    recorded: the inputs as traced. values: integers and tensors of one run, whose sizes are the hints.
    names: what a symbol is to be called, by the name that PyTorch gave it; symbols of one name are equal.
    """

    def __init__(self, recorded, values, names=None):
        self.table = SizeTable()
        self.sources = []  # of the table's symbols, in their order
        self._names = names or {}
        self._shown = {}  # sympy symbol, or expression of symbols that nothing shows -> Source
        self._sizes = {}  # expression -> Size or int
        self._named = {}  # name -> Size
        self._values = values
        self._environment = None
        self._collect(recorded)

    def _collect(self, recorded):
        shown = []  # (SymInt, input, dim, whether a stride)
        for i, value in enumerate(recorded):
            if isinstance(value, torch.SymInt):
                shown.append((value, i, None, False))
        for stride in (False, True):
            for i, value in enumerate(recorded):
                if isinstance(value, torch.Tensor):
                    of = value.stride() if stride else value.shape
                    shown += [(n, i, d, stride) for d, n in enumerate(of)]
        shown = [s for s in shown if isinstance(s[0], torch.SymInt)]
        for size, *place in shown:
            self._environment = self._environment or size.node.shape_env
            if size.node.expr.is_Symbol:
                self._shown.setdefault(size.node.expr, place)
        for size, *place in shown:
            expression, stride = size.node.expr, place[-1]
            if not stride and not expression.free_symbols <= self._shown.keys():
                self._shown.setdefault(expression, place)

    def size_of(self, value):
        """An int, or the Size of a SymInt. ExportError where it follows from no input, or in a way that
        graphs cannot say."""
        return value if isinstance(value, int) else self._of(value.node.expr)

    def assume_guards(self):
        """Makes facts of what PyTorch's trace took for granted, where nobody else checks it. A guard of
        symbols that the inputs do not show is left out; one that graphs cannot say pins all symbols."""
        environment = self._environment
        for expression in self._shown:  # in the order of the inputs, not of the guards
            if expression.is_Symbol:
                self._of(expression)
        for guard in [] if environment is None else list(environment.guards):
            expression = guard.expr
            while (replaced := expression.xreplace(environment.replacements)) != expression:
                expression = replaced
            if expression is sympy.true or not expression.free_symbols <= self._shown.keys():
                continue
            relation = _RELATIONS.get(type(expression))
            if relation is None:
                self.table.pin_all()
                continue
            try:
                operands = [self._of(operand) for operand in expression.args]
            except ExportError:
                self.table.pin_all()
                continue
            with self.table.assuming_for("a guard of the trace"):
                relation(*operands)

    def _of(self, expression):
        if expression not in self._sizes:
            self._sizes[expression] = self._made(expression)
        return self._sizes[expression]

    def _made(self, expression):
        if expression in self._shown:
            return self._symbol(expression)
        if expression.is_Integer:
            return int(expression)
        operation = _OPERATIONS.get(type(expression))
        if operation is None:
            what = "follows from no input of the backward" if expression.is_Symbol else (
                f"is a {type(expression).__name__}, which no graph can say"
            )
            raise ExportError(f"the size {expression} {what}")
        result, *rest = map(self._of, expression.args)
        for operand in rest:
            result = operation(result, operand)
        return result

    def _symbol(self, expression):
        place = self._shown[expression]
        name = self._names.get(str(expression), str(expression))
        if not expression.is_Symbol:
            name = f"e{len(self.sources)}"
            while name in self._named or name in self._names.values():
                name += "_"
        source = Source(name, *place)
        hint = source.value_in(self._values)
        least, most = self._range(expression)
        if name in self._named:  # two symbols of one name are one size
            known = self.table.value(self._named[name].terms)
            if known != hint:
                raise ExportError(
                    f"the size {name} is {known} and {hint}: give sizes that differ "
                    "names that do"
                )
            self.table.narrow(name, least, most)
            return self._named[name]
        size = self.table.symbol(name, hint, min(least, hint), max(most, hint))
        self.sources.append(source)
        self._named[name] = size
        return size

    def _range(self, expression):
        if not expression.is_Symbol:
            return -UNBOUNDED, UNBOUNDED
        found = self._environment.var_to_range.get(expression)
        least = 0 if found is None else _bounded(found.lower)
        return least, UNBOUNDED if found is None else _bounded(found.upper)


def _bounded(number):
    if number.is_Integer and abs(int(number)) < UNBOUNDED:
        return int(number)
    return UNBOUNDED if number > 0 else -UNBOUNDED


def _minimum(a, b):
    return -maximum(-a, -b)


_RELATIONS = {
    sympy.Eq: operator.eq, sympy.Ne: operator.ne, sympy.Lt: operator.lt, sympy.Le: operator.le,
    sympy.Gt: operator.gt, sympy.Ge: operator.ge,
}  # fmt: skip

_OPERATIONS = {
    sympy.Add: operator.add,
    sympy.Mul: operator.mul,
    sympy.Pow: operator.pow,
    functions.PowByNatural: operator.pow,
    sympy.Max: maximum,
    sympy.Min: _minimum,
    functions.Max: maximum,
    functions.Min: _minimum,
    functions.CeilDiv: lambda a, b: -(-a // b),
    functions.FloorDiv: operator.floordiv,
    functions.CleanDiv: operator.floordiv,
    functions.Mod: operator.mod,
    functions.PythonMod: operator.mod,
}
