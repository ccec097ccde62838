"""A graph traced with symbols, as the graph of one set of sizes."""

import sympy
import torch
from torch._subclasses import FakeTensorMode
from torch.fx._lazy_graph_module import _make_graph_module, _use_lazy_graph_module
from torch.utils import _pytree as pytree

from retrograd.errors import ExportError
from retrograd.sizes.size import as_float, is_symbolic, number_of, number_of_pinned
from retrograd.sizes.symbolic import LYING, NUMBERS, SHAPES, Lying

_SIZES = (int, torch.SymInt)


def has_symbols(example_inputs):
    """Whether any input is a size, or a tensor of sizes that are not known."""
    return any(
        isinstance(value, _SIZES)
        or (
            isinstance(value, torch.Tensor)
            and any(isinstance(n, torch.SymInt) for n in (*value.shape, *value.stride()))
        )
        for value in example_inputs
    )


def is_number(value):
    """Whether an input is a size."""
    return isinstance(value, _SIZES)


def hinted(example_inputs, strides=None):
    """The sizes at hand: integers, and fake tensors without symbols. strides: for each input, its own
    ones or None. ExportError where a size depends on data."""
    mode = FakeTensorMode()

    def number(size):
        if isinstance(size, int):
            return size
        if not size.node.has_hint():
            raise ExportError(f"the size {size} depends on data")
        return size.node.hint

    made = []
    for i, value in enumerate(example_inputs):
        if isinstance(value, _SIZES):
            made.append(number(value))
        elif isinstance(value, torch.Tensor):
            shape = tuple(map(number, value.shape))
            lying = strides and strides[i] or tuple(map(number, value.stride()))
            with mode:
                made.append(
                    torch.empty_strided(shape, lying, dtype=value.dtype, device=value.device)
                )
        else:
            raise ExportError(f"an input of the backward is a {type(value).__name__}")
    return made


def specialized(module, values, symbols=None, examples=None):
    """(the graph for the sizes of the values, its fake inputs): the sizes are no inputs any more.

    module: traced with symbols, which the guards of its forward allow to be these sizes. values:
    integers and tensors, real or fake. symbols: TorchSymbols of these values, to note in the nodes'
    meta how their numbers follow from symbols (sizes/symbolic.py); examples: then the inputs in other
    strides than the trace's, with symbols, that they may come in. ExportError where a size follows from
    none of the values.
    """
    placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
    sizes = Sizes(placeholders, values)
    notes = None if symbols is None else _Notes(symbols)
    graph = torch.fx.Graph()
    made = {}  # node -> node of `graph`, or the number that it is
    fakes = []  # in the strides of the values, which may be others than those of the trace
    for i, (node, value) in enumerate(zip(placeholders, values, strict=True)):
        if isinstance(value, torch.Tensor):
            made[node] = graph.node_copy(node)
            made[node].meta = dict(node.meta, val=sizes.known(node.meta["val"]))
            fakes.append(sizes.fake(value))
            if notes is not None:
                example = None if examples is None else examples[i]
                notes.of_input(node, made[node], fakes[-1], example)
        else:
            made[node] = value
            if notes is not None:
                notes.of_number(node, value)
    for node in module.graph.nodes:
        if node.op == "placeholder":
            continue
        if node.op == "output":
            copy = graph.node_copy(node, made.__getitem__)
            # A size that the graph returns is nobody's gradient.
            copy.args = ([r if isinstance(r, torch.fx.Node) else None for r in copy.args[0]],)
            continue
        recorded = node.meta.get("val")
        if node.op == "call_function" and isinstance(recorded, _NUMBERS):
            made[node] = _number_of(node, recorded, made, sizes)
            if notes is not None:
                notes.of_number(node, made[node])
            continue
        if str(node.target) in _CHECKS:
            continue  # the guards promise what it checks
        copy = made[node] = graph.node_copy(node, made.__getitem__)
        copy.args, copy.kwargs = sizes.known((copy.args, copy.kwargs))
        copy.meta = dict(node.meta, val=sizes.known(recorded))
        if notes is not None:
            notes.of_call(node, copy)
    with _use_lazy_graph_module(True):  # nobody runs it: it needs no code
        return _make_graph_module(module, graph), fakes


_CHECKS = {
    "aten._assert_scalar.default", "aten._assert_tensor_metadata.default",
    "aten.sym_constrain_range.default", "aten.sym_constrain_range_for_size.default",
}  # fmt: skip
_NUMBERS = (int, float, torch.SymInt, torch.SymFloat, torch.SymBool)


def _number_of(node, recorded, made, sizes):
    if isinstance(recorded, torch.SymInt):
        return sizes.known(recorded)
    if any(isinstance(made[operand], torch.fx.Node) for operand in node.all_input_nodes):
        raise ExportError(f"the number {node.name} depends on data")
    args = torch.fx.map_arg(node.args, made.__getitem__)
    return node.target(*args, **torch.fx.map_arg(node.kwargs, made.__getitem__))


def strides_with_sizes(numbers, shape, candidate=None, pin=False):
    """Strides that are these numbers at the hints: the candidate if it is one, else those of axes that lie
    one inside the other. Behind a gap that no size decides, as of rows of 50264 for 50257 elements, strides
    follow from sizes again. A stride behind another gap stays the number; pin: that what it steps over
    is as long as it is at the hints becomes a fact. shape: with Sizes."""
    if candidate is not None and tuple(map(number_of, candidate)) == tuple(numbers):
        return candidate
    strides, step = list(numbers), 1
    for axis in sorted(range(len(shape)), key=lambda a: (numbers[a], number_of(shape[a]))):
        if numbers[axis] == 0:
            continue  # every position is the same element
        if numbers[axis] == number_of(step):
            strides[axis] = step
        elif pin and is_symbolic(step):
            number_of_pinned(step)
        step = strides[axis] * shape[axis]
    return tuple(strides)


class _Notes:
    """Writes what follows from symbols into the meta of nodes."""

    def __init__(self, symbols):
        self._symbols = symbols
        self._numbers = {}  # node that is a number -> int, Size, float or Quotient

    def of_number(self, node, number):
        recorded = node.meta.get("val")
        if isinstance(recorded, torch.SymInt):
            number = self._symbols.size_of(recorded)
        elif node.op == "call_function" and isinstance(recorded, (torch.SymFloat, torch.SymBool)):
            target = _ON_SIZES.get(node.target, node.target)
            args = torch.fx.map_arg((node.args, node.kwargs), self._numbers.__getitem__)
            number = target(*args[0], **args[1])
        self._numbers[node] = number

    def of_input(self, node, copy, fake, example):
        """fake: the input as it comes. Its strides are the trace's if they are equal at the hints. The
        example's may hold numbers that are sizes of the first run: those of axes that lie one inside
        the other stand in their place."""
        traced = node.meta["val"]
        copy.meta[SHAPES] = [self._shape(traced)]
        if fake.stride() == copy.meta["val"].stride():
            copy.meta[LYING] = Lying(copy.meta["val"], self._symbols, traced)
            return
        strides = self._strides(fake, example, copy.meta[SHAPES][0])
        copy.meta[LYING] = Lying(fake, self._symbols, traced, strides)

    def _strides(self, fake, example, shape):
        nested = strides_with_sizes(fake.stride(), shape)
        if example is None:
            return nested
        given = tuple(map(self._symbols.size_of, example.stride()))
        if tuple(map(number_of, given)) != fake.stride():
            return nested
        return tuple(g if is_symbolic(g) else n for g, n in zip(given, nested, strict=True))

    def of_call(self, node, copy):
        recorded = node.meta.get("val")
        results = recorded if isinstance(recorded, (tuple, list)) else (recorded,)
        copy.meta[SHAPES] = [self._shape(r) for r in results]
        if isinstance(recorded, torch.Tensor):
            copy.meta[LYING] = Lying(copy.meta["val"], self._symbols, recorded)
        numbers = {}
        for place, leaf in enumerate(pytree.tree_leaves((node.args, node.kwargs))):
            size = self._numbers.get(leaf) if isinstance(leaf, torch.fx.Node) else leaf
            if isinstance(size, torch.SymInt):
                size = self._symbols.size_of(size)
            if is_symbolic(size):
                numbers[place] = size
        if numbers:
            copy.meta[NUMBERS] = numbers

    def _shape(self, tensor):
        of = tensor.shape if isinstance(tensor, torch.Tensor) else ()
        return tuple(map(self._symbols.size_of, of))


_ON_SIZES = {torch.sym_float: as_float}


class Sizes:
    """What the symbols of a traced graph are in one run."""

    def __init__(self, placeholders, values):
        self._mode = FakeTensorMode()
        self._symbols = {}
        self._numbers = {}  # expression -> number
        self._fakes = {}
        given = [(n.meta["val"], v) for n, v in zip(placeholders, values, strict=True)]
        tensors = [(r, v) for r, v in given if isinstance(v, torch.Tensor)]
        # What was learned first stands: strides may be others than those of the trace.
        self._learn([(r, v) for r, v in given if not isinstance(v, torch.Tensor)])
        for recorded, value in tensors:
            self._learn(zip(recorded.shape, value.shape, strict=True))
        for recorded, value in tensors:
            strides = zip(recorded.stride(), value.stride(), strict=True)
            self._learn((r, v) for r, v in strides if not isinstance(r, int) and r.node.expr.is_Symbol)

    def _learn(self, sizes):
        for recorded, value in sizes:
            if isinstance(recorded, torch.SymInt):
                self._symbols.setdefault(recorded.node.expr, sympy.Integer(int(value)))

    def known(self, value):
        """The value, which may be nested, with numbers and fake tensors in place of symbols."""
        if isinstance(value, torch.SymInt):
            return self._number(value)
        if isinstance(value, torch.Tensor):
            return self.fake(value)
        if isinstance(value, tuple):
            return tuple(map(self.known, value))
        if isinstance(value, list):
            return list(map(self.known, value))
        if isinstance(value, dict):
            return {name: self.known(part) for name, part in value.items()}
        return value

    def _number(self, size):
        if isinstance(size, int):
            return size
        expression = size.node.expr
        if expression not in self._numbers:
            number = expression.xreplace(self._symbols)
            if not number.is_Integer:
                raise ExportError(f"the size {size} follows from no input of the backward")
            self._numbers[expression] = int(number)
        return self._numbers[expression]

    def fake(self, tensor):
        """A fake tensor like this one."""
        shape = tuple(map(self._number, tensor.shape))
        strides = tuple(map(self._number, tensor.stride()))
        offset = 0
        if isinstance(tensor, torch._subclasses.FakeTensor):
            offset = self._number(tensor.storage_offset())
        key = shape, strides, offset, tensor.dtype, tensor.device
        if key not in self._fakes:
            last = sum((n - 1) * stride for n, stride in zip(shape, strides, strict=True))
            room = torch.empty(offset + max(last, 0) + 1, dtype=tensor.dtype, device="meta")
            meta = room.as_strided(shape, strides, offset)
            self._fakes[key] = torch._subclasses.FakeTensor(self._mode, meta, tensor.device)
        return self._fakes[key]
