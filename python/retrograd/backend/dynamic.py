"""Backwards of graphs with dynamic sizes: a program for each set of sizes that comes.

AOTAutograd hands over one graph whose sizes are symbols, and integers among the inputs of each run.
"""

import collections
import contextlib
import gc
import threading

import sympy
import torch
from torch._inductor.output_code import OutputCode
from torch._subclasses import FakeTensorMode
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx._lazy_graph_module import _make_graph_module, _use_lazy_graph_module

from retrograd import origins
from retrograd.backend import messages
from retrograd.errors import ExportError

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


def sizes_of(values):
    """What tells the sets of sizes of two runs apart."""
    return tuple(v if isinstance(v, int) else (v.shape, v.stride()) for v in values)


def hinted(example_inputs):
    """The sizes at hand: integers, and fake tensors without symbols. ExportError where a size depends
    on data."""
    mode = FakeTensorMode()

    def number(size):
        if isinstance(size, int):
            return size
        if not size.node.has_hint():
            raise ExportError(f"the size {size} depends on data")
        return size.node.hint

    made = []
    for value in example_inputs:
        if isinstance(value, _SIZES):
            made.append(number(value))
        elif isinstance(value, torch.Tensor):
            shape, strides = map(number, value.shape), map(number, value.stride())
            with mode:
                made.append(
                    torch.empty_strided(
                        tuple(shape), tuple(strides), dtype=value.dtype, device=value.device
                    )
                )
        else:
            raise ExportError(f"an input of the backward is a {type(value).__name__}")
    return made


def specialized(module, values):
    """(the graph for the sizes of the values, its fake inputs): the sizes are no inputs any more.

    module: traced with symbols, which the guards of its forward allow to be these sizes. values:
    integers and tensors, real or fake. ExportError where a size follows from none of them.
    """
    placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
    sizes = Sizes(placeholders, values)
    graph = torch.fx.Graph()
    made = {}  # node -> node of `graph`, or the number that it is
    fakes = []  # in the strides of the values, which may be others than those of the trace
    for node, value in zip(placeholders, values, strict=True):
        if isinstance(value, torch.Tensor):
            made[node] = graph.node_copy(node)
            made[node].meta = dict(node.meta, val=sizes.known(node.meta["val"]))
            fakes.append(sizes.fake(value))
        else:
            made[node] = value
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
            continue
        if str(node.target) in _CHECKS:
            continue  # the guards promise what it checks
        copy = made[node] = graph.node_copy(node, made.__getitem__)
        copy.args, copy.kwargs = sizes.known((copy.args, copy.kwargs))
        copy.meta = dict(node.meta, val=sizes.known(recorded))
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


@contextlib.contextmanager
def _garbage_kept():
    """Without Python's garbage collector, of all threads, if it is on: for the many objects that a graph is
    made of it would go several times through all that the process holds, which can take a second."""
    if not gc.isenabled():
        yield
        return
    gc.disable()
    try:
        yield
    finally:
        gc.enable()


class DynamicBackward(OutputCode):
    """Runs the CompiledBackward of the sizes that come, made when they first come.

    compile_static(graph, fakes): the CompiledBackward. most: that are kept; the one that was not used
    for longest goes.
    """

    def __init__(self, module, compile_static, most):
        self._module, self._compile, self._most = module, compile_static, most
        origins.find_once(module.graph)
        self._made = collections.OrderedDict()
        self._lock = threading.Lock()
        self._boxed_call = True  # in the instance: torch._dynamo.disable copies its __dict__

    def prepare(self, values):
        """Makes the CompiledBackward for the sizes of the values, if there is none."""
        key = sizes_of(values)
        with self._lock:
            if key in self._made:
                self._made.move_to_end(key)
                return self._made[key]
            # Without the symbols' mode, which is the current one while AOTAutograd compiles.
            with torch._guards.tracing(None), unset_fake_temporarily():
                with _garbage_kept():
                    static, fakes = specialized(self._module, values)
                compiled = self._made[key] = self._compile(static, fakes)
            if len(self._made) > self._most:
                self._made.popitem(last=False)
                messages.once.warn(
                    f"more than {self._most} sets of sizes for one backward: each set that comes "
                    "back is made again; option max_plans"
                )
            return compiled

    def __call__(self, inputs):
        values = list(inputs)
        inputs.clear()
        compiled = self.prepare(values)
        return compiled([v for v in values if isinstance(v, torch.Tensor)])

    def post_compile(self, example_inputs, constants, graph_kwargs):
        pass

    def prepare_for_serialization(self):
        pass

    def set_triton_bundle(self, triton_bundle):
        pass
