"""Graphs in which pairs of real tensors stand for complex ones: the table has rows for these."""

import contextlib

import torch
from torch.utils import _pytree as pytree

from retrograd import origins

aten = torch.ops.aten

# Linear ops that do to each part what they do to the whole.
_ALIKE = {
    aten.alias.default, aten.cat.default, aten.clone.default, aten.detach.default,
    aten.expand.default, aten.flip.default, aten.lift_fresh_copy.default, aten.mean.default,
    aten.mean.dim, aten.neg.default, aten.permute.default, aten.reshape.default, aten.select.int,
    aten.select_backward.default, aten.select_scatter.default, aten.slice.Tensor,
    aten.slice_backward.default, aten.slice_scatter.default, aten.squeeze.dim, aten.squeeze.dims,
    aten.stack.default, aten.sum.default, aten.sum.dim_IntList, aten.t.default,
    aten.transpose.int, aten._unsafe_view.default, aten.unsqueeze.default, aten.view.default,
}  # fmt: skip
_SUMS = {aten.add.Tensor, aten.sub.Tensor}
# Of two operands, and the op that multiplies their parts.
_PRODUCTS = {
    aten.mul.Tensor: aten.mul.Tensor, aten.mul.Scalar: aten.mul.Tensor,
    aten.mm.default: aten.mm.default, aten.bmm.default: aten.bmm.default,
}  # fmt: skip
_QUOTIENTS = {aten.div.Tensor, aten.div.Scalar}
_CONJUGATES = {aten._conj.default, aten._conj_physical.default, aten.conj_physical.default}
_RESOLVES = {aten.resolve_conj.default, aten.resolve_neg.default}


class _NoParts(Exception):
    """An op has no form in parts; `node`, of the given graph, where that is known."""

    node = None


def apart(module):
    """A copy of a module in which complex values that the graph makes are pairs of real ones.

    module: of static sizes, with `val` at each node. Complex inputs are viewed as real ones, and
    complex results put together again, by ops that the table lacks. None where there is no complex
    value, or an op has no form in parts.
    """
    if not has_complex(module.graph):
        return None
    try:
        return _written(module)
    except _NoParts:
        return None


def _written(module):
    """As apart() where there is a complex value, or _NoParts."""
    writer = _Writer()
    for node in module.graph.nodes:
        try:
            writer.write(node)
        except _NoParts as unknown:
            unknown.node = node
            raise
    return torch.fx.GraphModule(module, writer.graph)


def of_reals(module):
    """As apart(), with complex inputs and results that are real ones of one more axis at the end,
    as torch.view_as_real has them. ExportError for an op that has no form in parts.
    """
    try:
        parts = _written(module)
    except _NoParts as unknown:
        raise origins.refusal(
            unknown.node,
            "no form of it in real numbers is known; write the model without it, or in real numbers",
        ) from None
    graph = parts.graph
    for node in [n for n in graph.nodes if n.op == "placeholder" and _is_complex(n)]:
        node.meta["val"] = torch.view_as_real(node.meta["val"].resolve_conj())
        for pairs in [p for whole in node.users if whole.op != "output" for p in whole.users]:
            pairs.replace_all_uses_with(node)
    (output,) = [n for n in graph.nodes if n.op == "output"]
    output.args = torch.fx.map_arg(output.args, lambda n: n.args[0] if _is_complex(n) else n)
    graph.eliminate_dead_code()
    return torch.fx.GraphModule(parts, graph)


def has_complex(graph):
    """Whether a node's `val` is complex."""
    return any(_is_complex(n) for n in graph.nodes)


def _is_complex(node):
    value = node.meta.get("val")
    return isinstance(value, torch.Tensor) and value.is_complex()


class _Writer:
    def __init__(self):
        self.graph = torch.fx.Graph()
        self._copies = {}  # of nodes; a complex one's is there if it is an input
        self._parts = {}  # of complex nodes: (real part, imaginary part)
        self._origin = None  # the node that is written

    def write(self, node):
        self._origin = node
        complex_ones = [n for n in (node, *node.all_input_nodes) if _is_complex(n)]
        if node.op == "output":
            self._write_output(node)
        elif node.op in ("placeholder", "get_attr") or not complex_ones:
            self._copies[node] = self.graph.node_copy(node, self._copies.__getitem__)
        elif node.op == "call_function":
            self._write_call(node)
        else:
            raise _NoParts

    def _write_output(self, node):
        results = [
            self._whole(r) if r in self._parts else r and self._copies[r] for r in node.args[0]
        ]
        self.graph.output(tuple(results)).meta.update(node.meta)

    def _write_call(self, node):
        if node.target is aten.view_as_real.default:
            self._copies[node] = self._stacked(node.args[0])
        elif node.target is aten.view_as_complex.default:
            self._parts[node] = self._unstacked(self._copies[node.args[0]])
        elif node.target is aten.view.dtype and _is_real_of(node, node.args[0]):
            shape = list(node.meta["val"].shape)  # the parts in turn
            self._copies[node] = self._call(
                aten.reshape.default, self._stacked(node.args[0]), shape
            )
        elif node.target is aten.view.dtype and _is_real_of(node.args[0], node):
            shape = [*node.meta["val"].shape, 2]
            pairs = self._call(aten.reshape.default, self._copies[node.args[0]], shape)
            self._parts[node] = self._unstacked(pairs)
        elif not _is_complex(node):
            raise _NoParts
        else:
            self._parts[node] = self._made(node)
        if node in self._parts:
            self._check(node)

    def _check(self, node):
        """Parts that PyTorch would promote or broadcast otherwise are none."""
        whole = node.meta["val"]
        for part in self._parts[node]:
            value = part.meta["val"]
            if value.shape != whole.shape or value.dtype != whole.dtype.to_real():
                raise _NoParts

    def _made(self, node):
        """The parts of an op's result."""
        if node.target is aten.complex.default:
            shape = list(node.meta["val"].shape)
            return tuple(self._call(aten.expand.default, self._copies[n], shape) for n in node.args)
        if node.target in _RESOLVES:
            return self._parts_of(node.args[0])
        if node.target in _CONJUGATES:
            value = node.args[0]
            if not isinstance(value, torch.fx.Node):  # a number of the model's
                return self._constants(value.conjugate(), node.meta["val"])
            real, imaginary = self._parts_of(value)
            return real, self._call(aten.neg.default, imaginary)
        if node.target in _SUMS:
            return self._sum(node)
        if node.target is aten.full.default:
            return self._constants(complex(node.args[1]), node.meta["val"])
        if node.target in _PRODUCTS:
            return self._product(_PRODUCTS[node.target], *node.args)
        if node.target in _QUOTIENTS and not _is_a_complex(node.args[1]):
            by = self._real(node.args[1])
            return tuple(self._call(aten.div.Tensor, p, by) for p in self._parts_of(node.args[0]))
        if node.target in _ALIKE and all(_is_complex(n) for n in node.all_input_nodes):
            return tuple(self._alike(node, i) for i in (0, 1))
        raise _NoParts

    def _constants(self, number, like):
        """The parts of a number at all places of `like`, a complex tensor."""
        shape, dtype, device = list(like.shape), like.dtype.to_real(), like.device
        with getattr(like, "fake_mode", None) or contextlib.nullcontext():
            return tuple(
                self._call(aten.full.default, shape, part, dtype=dtype, device=device)
                for part in (number.real, number.imag)
            )

    def _sum(self, node):
        """Of complex values and numbers."""
        terms = [
            self._parts_of(term) if isinstance(term, torch.fx.Node) else (term.real, term.imag)
            for term in node.args
        ]
        if isinstance(node.kwargs.get("alpha"), complex):
            raise _NoParts
        return tuple(self._call(node.target, a, b, **node.kwargs) for a, b in zip(*terms))

    def _alike(self, node, part):
        args, kwargs = torch.fx.map_arg((node.args, node.kwargs), lambda n: self._parts_of(n)[part])
        op = aten.reshape.default if node.target is aten.view.default else node.target
        return self._call(op, *args, **kwargs)

    def _product(self, op, a, b):
        def times(x, y):
            return self._call(op, x, y)

        if not _is_a_complex(a):
            by = self._real(a)
            return tuple(times(by, part) for part in self._parts_of(b))
        real, imaginary = self._parts_of(a)
        if not _is_a_complex(b):
            by = self._real(b)
            return times(real, by), times(imaginary, by)
        other_real, other_imaginary = self._parts_of(b)

        return (
            self._call(aten.sub.Tensor, times(real, other_real), times(imaginary, other_imaginary)),
            self._call(aten.add.Tensor, times(real, other_imaginary), times(imaginary, other_real)),
        )

    def _real(self, factor):
        return self._copies[factor] if isinstance(factor, torch.fx.Node) else factor

    def _parts_of(self, value):
        if not isinstance(value, torch.fx.Node) or not _is_complex(value):
            raise _NoParts
        if value not in self._parts:
            whole = self._call(aten.resolve_conj.default, self._copies[value])
            self._parts[value] = self._unstacked(self._call(aten.view_as_real.default, whole))
        return self._parts[value]

    def _unstacked(self, pairs):
        return tuple(self._call(aten.select.int, pairs, -1, i) for i in (0, 1))

    def _stacked(self, value):
        return self._call(aten.stack.default, list(self._parts_of(value)), -1)

    def _whole(self, value):
        return self._call(aten.view_as_complex.default, self._stacked(value))

    def _call(self, op, *args, **kwargs):
        node = self.graph.call_function(op, args, kwargs)
        node.meta = dict(self._origin.meta)
        known = pytree.tree_map_only(torch.fx.Node, lambda n: n.meta["val"], (args, kwargs))
        try:
            node.meta["val"] = op(*known[0], **known[1])
        except (RuntimeError, TypeError, ValueError) as refusal:
            raise _NoParts from refusal
        return node


def _is_a_complex(value):
    return _is_complex(value) if isinstance(value, torch.fx.Node) else isinstance(value, complex)


def _is_real_of(real, whole):
    """Whether a node's dtype is that of the parts of a complex one."""
    return _is_complex(whole) and real.meta["val"].dtype == whole.meta["val"].dtype.to_real()
