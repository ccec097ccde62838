"""Captures what AOTAutograd hands to a backward compiler, and records what it is called with.

`capture_backward` compiles a function with a backend of its own: Inductor's decomposition table and
its min-cut partition, so that the captured graph is the one that Inductor would compile. With
`run=True` the forward and the backward are executed once by the fx interpreter and the backward's
arguments and results are recorded. With `run=False` the backend raises before anything runs, so
that a model of any size is captured with no memory but its weights'.
"""

import dataclasses
import re

import torch
import torch._inductor.lowering  # noqa: F401  without it some decompositions fail
from torch._dynamo.backends.common import aot_autograd
from torch._functorch.partitioners import min_cut_rematerialization_partition

from retrograd import (
    complex_parts,
    decompositions,
    distinct_indices,
    known_values,
    saved_gathers,
    schema,
    traced_gradients,
)
from retrograd.errors import ExportError
from retrograd.sizes import identical, is_symbolic
from retrograd.sizes.marks import marked, names_of_symbols
from retrograd.sizes.specialize import (
    has_symbols,
    hinted,
    is_number,
    specialized,
    strides_with_sizes,
)
from retrograd.sizes.symbolic import LYING, SHAPES
from retrograd.sizes.torch_symbols import TorchSymbols

_ALIGNMENT = 16  # bytes; the widest vector access of a GPU


@dataclasses.dataclass
class CapturedInput:
    """A placeholder of the backward's fx graph. `recorded`: the raw 1-D span of its storage from
    its first element, or None without a run."""

    node: torch.fx.Node
    name: str
    kind: int  # schema.SAVED, PARAMETER or TANGENT
    dtype: torch.dtype
    shape: tuple
    strides: tuple  # () if row-major
    alignment: int
    donated: bool
    saved: bool  # an activation: named after the forward node that made it
    recorded: torch.Tensor | None = None


@dataclasses.dataclass
class CapturedOutput:
    """A gradient. `node` is None where the host expects none; `recorded`: dense, or None."""

    node: torch.fx.Node | None
    name: str
    dtype: torch.dtype | None = None
    strides: tuple = ()
    recorded: torch.Tensor | None = None


@dataclasses.dataclass
class CapturedBackward:
    """One backward graph with all that is known about its inputs and outputs."""

    fx_graph: torch.fx.Graph
    inputs: list
    outputs: list
    numerics: object  # schema's Numerics
    sizes: object = None  # the sizes.SizeTable of what varies
    refusal: ExportError | None = None  # why the graph cannot be translated, if capturing tells


class _Stop(Exception):
    """Raised by the backend when the graphs are captured and nothing shall run."""


class _Recorder:
    """The two compilers of one forward/backward pair."""

    def __init__(self, example_inputs, names, keep_on_device):
        self.example_inputs = example_inputs
        self.names = names
        self.keep_on_device = keep_on_device
        self.forward = None  # fx graph
        self.backward = None  # GraphModule
        self.donated = ()
        self.symbol_names = {}  # of a symbol of PyTorch's -> what it is called in the graph
        self.arguments = None  # list of (shape, strides, offset, data_ptr, span) or None
        self.results = None

    def forward_compiler(self, module, _):
        self.forward = module.graph
        return _boxed(lambda args: torch.fx.Interpreter(module).run(*args))

    def backward_compiler(self, module, _):
        self.backward = module
        context = torch._guards.TracingContext.try_get()
        metadata = getattr(context, "fw_metadata", None)
        self.donated = tuple(getattr(metadata, "bw_donated_idxs", None) or ())

        def run(args):
            if self.arguments is None:
                self.arguments = [_record(a, self.keep_on_device) for a in args]
            results = torch.fx.Interpreter(module).run(*args)
            if self.results is None:
                self.results = [
                    _dense(r, self.keep_on_device) if isinstance(r, torch.Tensor) else None
                    for r in results
                ]
                self.result_strides = [
                    r.stride() if isinstance(r, torch.Tensor) else None for r in results
                ]
            return results

        return _boxed(run)


def _boxed(function):
    function._boxed_call = True  # the caller may free its arguments
    return function


@dataclasses.dataclass
class _Recorded:
    """What a call passed for one placeholder."""

    dtype: torch.dtype
    shape: tuple
    strides: tuple
    address: int
    span: torch.Tensor

    def of_reals(self):
        """The same as torch.view_as_real has it, if it is complex."""
        if not self.dtype.is_complex:
            return self
        return _Recorded(
            self.dtype.to_real(), (*self.shape, 2), _real_strides(self.strides), self.address,
            _real(self.span).flatten(),
        )  # fmt: skip


def _dense(result, keep_on_device):
    result = result.detach() if keep_on_device else result.detach().cpu()
    return result.clone(memory_format=torch.contiguous_format)


def _record(value, keep_on_device):
    """The span is a copy on the CPU, or the very memory that the backward was given."""
    if not isinstance(value, torch.Tensor):
        return None
    value = value.detach()
    elements = 1 + sum((n - 1) * s for n, s in zip(value.shape, value.stride()))
    elements = elements if value.numel() else 0
    span = value.as_strided((elements,), (1,), value.storage_offset())
    span = span if keep_on_device else span.cpu().clone()
    return _Recorded(value.dtype, tuple(value.shape), value.stride(), value.data_ptr(), span)


def capture_backward(
    function, args, kwargs, names, *, run=True, composites="decomposed", keep_on_device=False,
    joint_passes=False, sizes=(),
):  # fmt: skip
    """Captures the backward graphs of `function(*args, **kwargs)`, which returns a scalar.

    names: the names.TensorNames of the call; the `grad` of its leaves is left as it was.
    keep_on_device: what is recorded stays where it is, uncopied, and as long as the result lives.
    joint_passes: with the passes that Inductor makes over forward and backward before it parts them,
    after which it may save other tensors.
    sizes: marks.Marks of the extents that vary, besides those that torch._dynamo.mark_dynamic has marked.
    Returns CapturedBackwards in the order of their forwards. ExportError if nothing needs a gradient, or,
    with run=False, if the function does not compile to one graph.
    """
    recorders, decomposition_table = [], decompositions.table(composites)

    def backend(module, example_inputs):
        recorder = _Recorder(list(example_inputs), names, keep_on_device)
        recorder.symbol_names = names_of_symbols(module, example_inputs, names, sizes)
        recorders.append(recorder)
        not_lazy = torch._functorch.config.patch(force_non_lazy_backward_lowering=not run)
        with not_lazy, traced_gradients.in_few_ops():
            compiled = aot_autograd(
                fw_compiler=recorder.forward_compiler,
                bw_compiler=recorder.backward_compiler,
                decompositions=decomposition_table,
                partition_fn=_partition(joint_passes),
            )(module, example_inputs)
        if not run:
            raise _Stop
        return compiled

    torch._dynamo.reset()
    compiled = torch.compile(function, backend=backend, fullgraph=not run, dynamic=False)
    gradients = [(leaf, leaf.grad) for leaf in names.leaves()]
    for leaf, _ in gradients:
        leaf.grad = None
    try:
        # A loss may hold gradients, as forces are of an energy: Dynamo traces torch.autograd.grad.
        with marked(sizes), torch._dynamo.config.patch(trace_autograd_ops=True):
            if run:
                _check_loss(compiled(*args, **kwargs)).backward()
            else:
                _capture_only(compiled, args, kwargs, recorders)
    finally:
        torch._dynamo.reset()
        for leaf, gradient in gradients:
            leaf.grad = gradient
    captured = [_collect(r) for r in recorders if r.backward is not None]
    if not captured:
        raise ExportError("the function has no backward graph: nothing in it requires a gradient")
    return captured


def _partition(joint_passes):
    if not joint_passes:
        return min_cut_rematerialization_partition
    from torch._inductor.compile_fx import partition_fn
    from torch._inductor.virtualized import V

    def partition(joint, inputs, **kwargs):
        with V.set_fake_mode(torch._guards.detect_fake_mode(inputs)):
            return partition_fn(joint, inputs, **kwargs)

    return partition


def _capture_only(compiled, args, kwargs, recorders):
    """Calls `compiled`, whose backend stops it once it has both graphs."""
    try:
        _check_loss(compiled(*args, **kwargs))
    except torch._dynamo.exc.Unsupported as error:
        raise ExportError(
            f"the model does not compile to one graph ({str(error).strip().splitlines()[0]}); "
            "run=False needs one graph, run=True follows graph breaks"
        ) from error
    except torch._dynamo.exc.BackendCompilerFailed:
        if not recorders or recorders[-1].backward is None:  # not our _Stop: compiling failed
            raise


def _check_loss(loss):
    """The loss, if it is a scalar that requires a gradient."""
    if not isinstance(loss, torch.Tensor) or loss.numel() != 1:
        what = f"a {list(loss.shape)} tensor" if isinstance(loss, torch.Tensor) else type(loss)
        raise ExportError(f"expected a scalar loss but the model gave {what}; pass loss_fn")
    if not loss.requires_grad:
        raise ExportError("the loss does not require a gradient: no parameter takes part in it")
    return loss


def _collect(recorder):
    """The CapturedBackward of a recorder."""
    graph = recorder.backward.graph
    distinct_indices.mark(graph, distinct_indices.axes_of(recorder.forward))
    known_values.compute_again(graph, recorder.forward)
    saved_gathers.gather_again(graph, recorder.forward)
    graph, numbers, table = _at_hints(recorder)
    graph, refusal = _of_reals(recorder, graph, varies=table is not None)
    placeholders = [n for n in graph.nodes if n.op == "placeholder"]
    arguments = recorder.arguments or [None] * len(recorder.backward.graph.nodes)
    unique = list({id(e): e for e in recorder.example_inputs}.values())
    inputs = [
        _input(node, i in recorder.donated, recorder, unique, arguments[i])
        for i, node in zip(numbers, placeholders, strict=True)
    ]
    make_unique(inputs)
    (output_node,) = [n for n in graph.nodes if n.op == "output"]
    results = list(output_node.args[0])
    examples = recorder.example_inputs if len(results) == len(recorder.example_inputs) else unique
    outputs = []
    for i, result in enumerate(results):
        example = examples[i] if len(examples) == len(results) else None
        if is_number(example) and not isinstance(result, torch.fx.Node):
            continue  # nobody asks for the gradient of a size
        outputs.append(_output(result, i, example, recorder))
    return CapturedBackward(graph, inputs, outputs, numerics(), table, refusal)


def _at_hints(recorder):
    """(the backward's graph for the sizes that were captured, the places of its inputs among those of the
    backward, the SizeTable of what varies or None)."""
    graph = recorder.backward.graph
    traced = [n.meta.get("val") for n in graph.nodes if n.op == "placeholder"]
    if not has_symbols(traced):
        return graph, range(len(traced)), None
    values = hinted(traced, [a and a.strides for a in recorder.arguments or [None] * len(traced)])
    symbols = TorchSymbols(traced, values, recorder.symbol_names)
    symbols.assume_guards()
    module, _ = specialized(recorder.backward, values, symbols)
    numbers = [i for i, value in enumerate(values) if not is_number(value)]
    return module.graph, numbers, symbols.table


def _of_reals(recorder, graph, varies):
    """(the graph with real tensors of one more axis in place of complex ones, None), what was recorded
    likewise; or (the graph as it is, an ExportError). varies: whether extents do."""
    if not complex_parts.has_complex(graph):
        return graph, None
    if varies:
        return graph, ExportError(
            "complex values of a graph whose extents vary cannot be exported: export it for one "
            "size, or write the model in real numbers"
        )
    try:
        module = complex_parts.of_reals(torch.fx.GraphModule(recorder.backward, graph))
    except ExportError as refusal:
        return graph, refusal
    if recorder.arguments:
        recorder.arguments = [a and a.of_reals() for a in recorder.arguments]
    if recorder.results:
        recorder.results = [_real(r) for r in recorder.results]
        recorder.result_strides = [
            strides if result is None or result.dim() == len(strides) else _real_strides(strides)
            for result, strides in zip(recorder.results, recorder.result_strides)
        ]
    return module.graph, None


def _real(tensor):
    """A complex tensor as torch.view_as_real has it, and any other as it is."""
    if tensor is None or not tensor.is_complex():
        return tensor
    return torch.view_as_real(tensor.resolve_conj())


def _real_strides(strides):
    return (*(2 * s for s in strides), 1)


def primal_index(node):
    """The number of the forward's input that the placeholder is; None of any other."""
    index = getattr(node.meta.get("desc"), "idx", None)
    if index is None:
        match = re.fullmatch(r"primals_(\d+)", str(node.target))
        index = int(match.group(1)) - 1 if match else None
    return index if str(node.target).startswith("primals_") else None


def _input(node, donated, recorder, unique, recorded):
    value = node.meta.get("val")
    if not isinstance(value, torch.Tensor):
        raise ExportError(
            f"input {node.name} of the backward is a {type(value).__name__} and not a tensor"
        )
    index = primal_index(node)
    name, kind = str(node.target), schema.SAVED
    if str(node.target).startswith("tangents_"):
        kind = schema.TANGENT
    elif index is not None:
        inputs = recorder.example_inputs
        example = inputs[index] if index < len(inputs) else None
        name, kind = recorder.names.of(example, name)
    source = recorded or _Recorded(value.dtype, tuple(value.shape), value.stride(), None, None)
    address = recorded.address if recorded else value.storage_offset() * value.dtype.itemsize
    shape, strides, aligned = source.shape, source.strides, address % _ALIGNMENT == 0
    if SHAPES in node.meta:
        (shape,), lying = node.meta[SHAPES], node.meta[LYING]
        strides = lying.stride()
        moved = lying.storage_offset() * value.dtype.itemsize
        aligned = aligned and (not is_symbolic(moved) or identical(moved % _ALIGNMENT, 0))
    return CapturedInput(
        node=node,
        name=name,
        kind=kind,
        dtype=source.dtype,
        shape=shape,
        strides=given_strides(shape, strides),
        alignment=_ALIGNMENT if aligned else 0,
        donated=donated,
        saved=index is None and kind == schema.SAVED,
        recorded=source.span,
    )


def make_unique(inputs):
    """Numbers inputs of one name."""
    seen = {}
    for item in inputs:
        count = seen[item.name] = seen.get(item.name, 0) + 1
        if count > 1:
            item.name = f"{item.name}#{count}"


def _output(result, index, example, recorder):
    name = recorder.names.of(example, f"input_{index}")[0]
    if not isinstance(result, torch.fx.Node):
        return CapturedOutput(None, name)
    value = result.meta["val"]
    recorded = recorder.results[index] if recorder.results else None
    strides = recorder.result_strides[index] if recorder.results else value.stride()
    shape = tuple(value.shape)
    if SHAPES in result.meta:
        (shape,) = result.meta[SHAPES]
        strides = strides_with_sizes(strides, shape, result.meta[LYING].stride(), pin=True)
    strides = result_strides(shape, strides)
    dtype = value.dtype if recorded is None else recorded.dtype
    return CapturedOutput(result, name, dtype, strides, recorded)


def given_strides(shape, strides):
    """() for row-major strides; extents of 1 do not matter."""
    expected = 1
    for n, s in zip(reversed(shape), reversed(strides)):
        if not identical(s, expected) and n != 1 and s != expected:
            return tuple(strides)
        expected *= n
    return ()


def result_strides(shape, strides):
    """Those of a result in memory of its own, () for row-major: its axes in the order that it was
    seen in, without the gaps that a view of a larger tensor has, where all of both are numbers;
    row-major where elements share an address, or there are none."""
    strides = given_strides(shape, strides)
    if strides and (any(identical(n, 0) for n in shape) or overlaps(shape, strides)):
        return ()
    if not all(isinstance(number, int) for number in (*shape, *strides)):
        return strides
    packed, expected = list(strides), 1
    for axis in sorted((a for a in range(len(strides)) if shape[a] != 1), key=lambda a: strides[a]):
        packed[axis], expected = expected, expected * shape[axis]
    return given_strides(shape, packed)


def overlaps(shape, strides):
    """Whether two elements share an address (conservatively: strides must nest)."""
    extent = 1
    for s, n in sorted((s, n) for n, s in zip(shape, strides) if n != 1):
        if s < extent:
            return True
        extent = s * (n - 1) + extent
    return False


def numerics():
    """What PyTorch's settings allow, as the schema's Numerics."""
    matmul = torch.backends.cuda.matmul
    numerics = schema.Graph().numerics
    numerics.allow_tf32 = torch.get_float32_matmul_precision() != "highest"
    reduced = getattr(matmul, "allow_bf16_reduced_precision_reduction", False)
    numerics.allow_reduced_precision_reduction = bool(reduced)
    numerics.deterministic = torch.are_deterministic_algorithms_enabled()
    numerics.framework = f"torch {torch.__version__.split('+')[0]}"
    return numerics
