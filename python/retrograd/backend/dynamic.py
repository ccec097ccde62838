"""Backwards of graphs with dynamic sizes: a program for each set of sizes that comes.

AOTAutograd hands over one graph whose sizes are symbols, and integers among the inputs of each run.
"""

import collections
import threading

import torch
from torch._inductor.output_code import OutputCode
from torch._subclasses import FakeTensorMode
from torch._subclasses.fake_tensor import unset_fake_temporarily
from torch.fx.experimental.proxy_tensor import make_fx

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

    values: integers and tensors, real or fake.
    """
    modes = [v.fake_mode for v in values if isinstance(v, torch._subclasses.FakeTensor)]
    mode = modes[0] if modes else FakeTensorMode()
    places = [i for i, v in enumerate(values) if isinstance(v, torch.Tensor)]
    fakes = [
        values[i] if modes else mode.from_tensor(values[i], static_shapes=True) for i in places
    ]

    def run(*tensors):
        given = list(values)
        for place, tensor in zip(places, tensors, strict=True):
            given[place] = tensor
        return list(torch.fx.Interpreter(module).run(*given))

    with mode, torch.no_grad(), torch.fx.traceback.preserve_node_meta():
        static = make_fx(run)(*fakes)
    _take_names(module, static, places)
    return static, fakes


def _take_names(module, static, places):
    """What the placeholders and the results are called, and what they are gradients of."""
    before = [n for n in module.graph.nodes if n.op == "placeholder"]
    after = [n for n in static.graph.nodes if n.op == "placeholder"]
    for place, node in zip(places, after, strict=True):
        node.target = before[place].target
        if "desc" in before[place].meta:
            node.meta["desc"] = before[place].meta["desc"]
    outputs = [[n for n in m.graph.nodes if n.op == "output"][0] for m in (module, static)]
    if "desc" in outputs[0].meta:
        outputs[1].meta["desc"] = outputs[0].meta["desc"]
    # A size that the graph returns is nobody's gradient.
    results = [r if isinstance(r, torch.fx.Node) else None for r in outputs[1].args[0]]
    outputs[1].args = (results,)


class DynamicBackward(OutputCode):
    """Runs the CompiledBackward of the sizes that come, made when they first come.

    compile_static(graph, fakes): the CompiledBackward. most: that are kept; the one that was not used
    for longest goes.
    """

    def __init__(self, module, compile_static, most):
        self._module, self._compile, self._most = module, compile_static, most
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
