"""Turns the fx graph of a captured backward into a schema.Graph, row by row of the table."""

import contextlib
import operator

import torch
from torch._subclasses.fake_tensor import unset_fake_temporarily

from retrograd import aten_table, distinct_indices, dtypes, origins, schema

from retrograd import rows  # noqa: F401  isort: skip  registers the rows of the table
from retrograd.builder import Builder, Ref
from retrograd.errors import ExportError
from retrograd.sizes.symbolic import LYING, SHAPES, with_sizes

GRADIENTS = ("input", "weight")  # of a convolution

# Types that the schema lacks and that only travel: the same bits under another name.
_SAME_BITS = {torch.uint64: torch.int64, torch.uint32: torch.int32}


class Call:
    """What a row of the table sees of its fx node: the builder `b`, the node's result type as
    recorded (`dtype`, `shape` of its one result), which gradients of 1x1 convolutions are to be
    matmuls (`matmul_gradients`), and how to refuse."""

    def __init__(self, builder, node, matmul_gradients=GRADIENTS):
        self.b = builder
        self.matmul_gradients = matmul_gradients
        self._node = node

    @property
    def name(self):
        """The op as the table names it."""
        return str(self._node.target)

    @property
    def dtype(self):
        return self._node.meta["val"].dtype

    @property
    def shape(self):
        return shapes_of(self._node)[0]

    @property
    def shapes(self):
        """Of each of the node's results."""
        return shapes_of(self._node)

    def recorded(self, argument):
        """The tensor that the node's argument of this number was recorded as: its strides and
        offset, which the row's Refs lack. Where sizes vary, these are those at the hints, and may be
        asked for what changes no result; else see addressed()."""
        return self._node.args[argument].meta["val"]

    def addressed(self, argument):
        """The same where results depend on strides and offset: if they follow from symbols in a way
        that is not known, all symbols are their hints."""
        node = self._node.args[argument]
        known = node.meta.get(LYING)
        if known is None:
            return node.meta["val"]
        if known.value is node.meta["val"]:
            return known
        known.table.pin_all()
        return node.meta["val"]

    @property
    def original_aten(self):
        return origins.original_op(self._node)

    def error(self, reason):
        """An ExportError that names the op, the node and the line of the model."""
        return origins.refusal(self._node, reason)

    def uses(self, index):
        """Whether the node's result `index` is used."""
        return any(
            user.target is operator.getitem and user.args[1] == index and user.users
            for user in self._node.users
        )


def shapes_of(node):
    """The shapes of a node's results, with Sizes where they vary."""
    if SHAPES in node.meta:
        return node.meta[SHAPES]
    value = node.meta["val"]
    return [tuple(v.shape) for v in (value if isinstance(value, (tuple, list)) else (value,))]


def translate(captured, name, matmul_gradients=GRADIENTS):
    """Returns (graph, constants).

    captured: a capture.CapturedBackward. graph: the schema.Graph called `name`; its inputs are the
    fx graph's placeholders in order, then the tensors that the fx graph holds itself, which
    `constants` maps from node id to tensor. matmul_gradients: of GRADIENTS, those that a 1x1
    convolution has as matmuls where its tensors lie as rows of pixels; others stay its gradients.
    Where sizes vary (captured.sizes), the graph is that of the hints, and says how its numbers follow
    from symbols. ExportError for an op without a row.
    """
    return _Translation(captured, name, matmul_gradients).run()


@contextlib.contextmanager
def _about(node):
    """An ExportError of the block is about the node, if it is about no other."""
    try:
        yield
    except ExportError as refusal:
        refusal.node = refusal.node or node.name
        raise


class _Translation:
    def __init__(self, captured, name, matmul_gradients):
        self.captured = captured
        self.matmul_gradients = matmul_gradients
        self.b = Builder(origins.display(name))
        self.values = {}  # fx node -> Ref or tuple of Refs
        self.constants = {}
        self.b.graph.numerics.CopyFrom(captured.numerics)

    def run(self):
        if self.captured.refusal is not None:
            raise self.captured.refusal
        graph = self.captured.fx_graph
        for placeholder in self.captured.inputs:
            self._input(placeholder)
        for node in graph.nodes:
            if node.op == "get_attr" and not _is_graph(node):
                self._constant(node)
        for node in graph.nodes:
            if node.op == "call_function":
                self._call(node)
            elif node.op in ("call_module", "call_method"):
                raise Call(self.b, node).error(f"{node.op} nodes are not expected in a backward")
        self.b.set_origin(None)
        for output in self.captured.outputs:
            value = None if output.node is None else self.values[output.node]
            self._check_output(output, value)
            self.b.output(value, origins.display(output.name), output.strides)
        origins.renumber(self.b.graph.origins)
        if self.captured.sizes is not None:
            self.captured.sizes.write(self.b.graph, self.b.places)
        return self.b.graph, self.constants

    def _input(self, placeholder):
        self.b.set_origin(origins.origin_of(placeholder.node) if placeholder.saved else None)
        info = schema.InputInfo(
            name=origins.display(placeholder.name),
            kind=placeholder.kind,
            alignment=placeholder.alignment,
            donated=placeholder.donated,
        )
        dtype = _SAME_BITS.get(placeholder.dtype, placeholder.dtype)
        with _about(placeholder.node):
            value = self.b.input(dtype, placeholder.shape, info, placeholder.strides)
        self.values[placeholder.node] = value
        axis = distinct_indices.marked(placeholder.node)
        if axis is not None:
            self.b.distinct[value.node] = axis

    def _constant(self, node):
        """A tensor that the model made from Python numbers: a `full`, or an input of its own."""
        tensor = getattr(node.graph.owning_module, node.target)
        with unset_fake_temporarily():
            tensor = tensor.detach().cpu().contiguous()
            if tensor.numel() and bool((tensor == tensor.flatten()[0]).all()):
                value = tensor.flatten()[0].item()
                self.values[node] = self.b.full(value, tensor.dtype, tuple(tensor.shape))
                return
        info = schema.InputInfo(name=origins.display(node.target), kind=schema.CONSTANT)
        ref = self.b.input(tensor.dtype, tuple(tensor.shape), info)
        self.constants[ref.node] = tensor
        self.values[node] = ref

    def _call(self, node):
        if node.target is operator.getitem:
            self.values[node] = self.values[node.args[0]][node.args[1]]
            return
        self.b.set_origin(origins.origin_of(node))
        call = Call(self.b, node, self.matmul_gradients)
        function = aten_table.lookup(str(node.target))
        if function is None:
            raise call.error(_without_row(node.target))
        args, kwargs = with_sizes(node)
        args = torch.fx.map_arg(args, self.values.__getitem__)
        kwargs = torch.fx.map_arg(kwargs, self.values.__getitem__)
        try:
            with _about(node), self._assuming_for(call):
                result = function(call, *args, **kwargs)
                self.values[node] = self._checked(call, node, result)
        except ExportError:
            raise
        except Exception as error:  # an argument form that the row does not know
            raise call.error(f"{type(error).__name__}: {error}") from error

    def _assuming_for(self, call):
        if self.captured.sizes is None:
            return contextlib.nullcontext()
        return self.captured.sizes.assuming_for(origins.display(call.name))

    def _checked(self, call, node, result):
        """The result, whose shape must be the recorded one."""
        expected = node.meta.get("val")
        if isinstance(result, Ref) and isinstance(expected, torch.Tensor):
            shape = call.shape
            if len(result.shape) != len(shape) or result.shape != shape:
                raise call.error(
                    f"translated to shape {list(result.shape)} where PyTorch has "
                    f"{list(shape)}; this is a mistake in the op's row"
                )
        return result

    def _check_output(self, output, value):
        if value is None or output.dtype is None or value.dtype == output.dtype:
            return
        raise ExportError(
            f"the gradient of {output.name} was translated to {value.dtype} where PyTorch has "
            f"{output.dtype}; this is a mistake in a row of aten_table.py"
        )


def _is_graph(node):
    """Whether the attribute is a graph, which an op such as torch.cond runs."""
    return isinstance(getattr(node.graph.owning_module, node.target, None), torch.nn.Module)


def _without_row(op):
    """What is said of an op that the table lacks, and what to do."""
    if "rng_state" in str(op) or str(op).startswith("prims.inductor_"):
        return (
            "what a checkpointed block draws again, such as dropout's mask, is drawn by PyTorch; "
            "leave dropout outside of the block, or set it to 0"
        )
    if not isinstance(op, torch._ops.HigherOrderOperator):
        return "the op has no row in aten_table.py; write the model without it, or add a row"
    return (
        "the op runs graphs of its own; write a branch as torch.where, and a loop as one of "
        "Python's over a number of steps that is known"
    )


def schema_dtype(tensor):
    """The tensor as the schema names its type: unsigned integers that it lacks as signed bits."""
    dtype = _SAME_BITS.get(tensor.dtype, tensor.dtype)
    dtypes.number_of(dtype)
    return tensor.view(dtype) if dtype != tensor.dtype else tensor
