"""A backward graph cut into pieces: ops that the table has rows for, and the others between them."""

import dataclasses
import operator

import torch
from torch.utils import _pytree as pytree

from retrograd import aten_table

# Of ops: an estimate of how many PyTorch issues in the host's time for a run of a compiled piece.
_FEWEST = 8
# Ops that mean what a compiler has given them, or draw from generators that it has moved.
_COMPILERS = ("prims::inductor_", "rngprims::")


@dataclasses.dataclass
class Piece:
    """Nodes of a graph that run at once, as a module of their own that takes and returns tuples."""

    module: torch.fx.GraphModule
    inputs: list  # nodes of the whole graph
    outputs: list
    is_foreign: bool  # PyTorch runs it


def foreign_ops(graph):
    """The nodes of a graph that PyTorch has to run: without a row, or with complex numbers."""
    calls = [n for n in graph.nodes if n.op == "call_function" and not _is_part(n)]
    return {
        node
        for node in calls
        if not aten_table.has_row(node)
        or any(_is_complex(n) for n in (node, *node.all_input_nodes))
    }


def runs_alone(node):
    """Whether PyTorch can run the node's op, and it gives the same whoever runs it and when: an op that
    writes what it is given has its place between others."""
    op = node.target
    return (
        isinstance(op, torch._ops.OpOverload)
        and not op._schema.is_mutable
        and not op._schema.name.startswith(_COMPILERS)
        and torch.Tag.nondeterministic_seeded not in op.tags
    )


def cut(module, foreign):
    """The pieces of a module's graph in the order that they run in, so that as few alternate as can.

    foreign: the set of its nodes that PyTorch runs. What would be a small piece of ours is added to it.
    """
    while True:
        stages = _Stages(module.graph, foreign)
        small = stages.small()
        if not small:
            return [stages.piece(module, stage) for stage in sorted(stages.nodes_at)]
        foreign |= small


class _Stages:
    """The stage at which each node runs: odd for foreign ones. `nodes_at`: {stage: its nodes}.

    Sources, such as a full, and views run in every piece that reads them, so that no copy of them is
    made; they have a stage only where they are results.
    """

    def __init__(self, graph, foreign):
        self.foreign = foreign
        self.place = {node: i for i, node in enumerate(graph.nodes)}
        self.results = set(_results(graph))
        self.stage_of = {}
        calls = [n for n in graph.nodes if n.op == "call_function"]
        for node in calls:
            self.stage_of[node] = self._first(node)
        self._sink(calls)
        self.nodes_at = {}
        for node in calls:
            if not self._is_free(node) or node in self.results:
                self.nodes_at.setdefault(self.stage_of[node], []).append(node)
        if 0 not in self.nodes_at and -1 in self.nodes_at:  # nothing of ours is between
            self.nodes_at[1] = self.nodes_at.pop(-1) + self.nodes_at.get(1, [])

    def small(self):
        """The calls of pieces of ours that are few."""
        ours = [
            [n for n in nodes if not _is_part(n)]
            for stage, nodes in self.nodes_at.items()
            if stage % 2 == 0
        ]
        return {n for calls in ours if len(calls) < _FEWEST for n in calls}

    def piece(self, module, stage):
        nodes = self.nodes_at[stage]
        inside, inputs, copied = set(nodes), {}, set()
        waiting = list(nodes)
        while waiting:
            for read in waiting.pop().all_input_nodes:
                if read in inside or read in copied:
                    continue
                if read.op == "get_attr" or self._is_free(read):
                    copied.add(read)
                    waiting.append(read)
                else:
                    inputs[read] = None
        outputs = [
            n for n in nodes
            if n in self.results
            or not self._is_free(n) and any(u not in inside for u in self._readers(n))
        ]  # fmt: skip
        body = sorted([*copied, *nodes], key=self.place.__getitem__)
        inner = _module(module, sorted(inputs, key=self.place.__getitem__), body, outputs)
        return Piece(inner, sorted(inputs, key=self.place.__getitem__), outputs, stage % 2 == 1)

    def _first(self, node):
        """The first stage at which all that the node reads is there; for PyTorch's views of what the
        whole graph is given, one before all others."""
        if node in self.foreign and getattr(node.target, "is_view", False):
            if all(self.stage_of.get(n, -1) < 0 for n in node.all_input_nodes):
                return -1
        stage = max((self.stage_of.get(n, 0) for n in node.all_input_nodes), default=0)
        if _is_part(node) or self._is_free(node):
            return stage
        return stage + (stage % 2 != (node in self.foreign))

    def _sink(self, calls):
        """What reads only what the whole graph is given runs where it is read first."""
        early = set()
        for node in calls:
            given = (n.op != "call_function" or n in early for n in node.all_input_nodes)
            if self.stage_of[node] == 0 and all(given):
                early.add(node)
        for node in reversed(calls):
            parts = [u for u in node.users if _is_part(u)]
            if node not in early or _is_part(node) or not self.results.isdisjoint((node, *parts)):
                continue
            readers = [u for n in (node, *parts) for u in self._readers(n) if u not in parts]
            first = min((self.stage_of[u] for u in readers), default=0)
            for moved in (node, *parts):
                self.stage_of[moved] = first - first % 2

    def _is_free(self, node):
        if node.op != "call_function" or node in self.foreign or _is_part(node):
            return False
        return not node.all_input_nodes or getattr(node.target, "is_view", False) or (
            node.target is torch.ops.aten.reshape.default
        )  # fmt: skip

    def _readers(self, node):
        """The calls that read the node, also through views, which run where they are read; a view that
        is a result has a place of its own as well."""
        for user in node.users:
            if self._is_free(user):
                yield from self._readers(user)
            if user.op != "output" and (not self._is_free(user) or user in self.results):
                yield user


def _module(whole, inputs, body, outputs):
    """A module that computes the outputs from the inputs by the nodes of the body."""
    graph, copies = torch.fx.Graph(), {}
    for node in inputs:
        name = node.target if node.op == "placeholder" else node.name
        copies[node] = graph.placeholder(name)
        copies[node].meta = dict(node.meta)
    for node in body:
        copies[node] = graph.node_copy(node, copies.__getitem__)
    returned = graph.output(tuple(copies[n] for n in outputs))
    described = _descriptions(whole.graph)
    returned.meta["desc"] = [described.get(n) for n in outputs]
    return torch.fx.GraphModule(whole, graph)


def _is_part(node):
    """Whether the node takes a result out of several, which belongs to the op that made it."""
    return node.target is operator.getitem


def _is_complex(node):
    values = pytree.tree_leaves(node.meta.get("val"))
    return any(isinstance(v, torch.Tensor) and v.is_complex() for v in values)


def _results(graph):
    (returned,) = [n for n in graph.nodes if n.op == "output"]
    return [r for r in returned.args[0] if isinstance(r, torch.fx.Node)]


def _descriptions(graph):
    """What AOTAutograd says of each result."""
    (returned,) = [n for n in graph.nodes if n.op == "output"]
    results = returned.args[0]
    return dict(zip(results, returned.meta.get("desc") or [None] * len(results)))
