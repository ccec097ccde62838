"""A backward with ops that the table lacks: PyTorch runs these, and compiled pieces what is between."""

import dataclasses

import torch

from retrograd import complex_parts
from retrograd.backend import pieces, watching
from retrograd.backend.arrived import propagated
from retrograd.errors import ExportError


@dataclasses.dataclass
class _Step:
    run: object  # a CompiledBackward, or a module of PyTorch's ops
    is_foreign: bool
    inputs: list  # names of values
    outputs: list
    over: list  # names of values that no later step reads


class DividedBackward:
    """Runs the pieces of a backward graph in turn on the tensors that autograd hands over."""

    def __init__(self, module, example_inputs, refusal, compile_piece):
        """module: the graph, which stays as it is. refusal: the ExportError that names one of its nodes.
        compile_piece: of (module, fake inputs) a CompiledBackward. ExportError where an op cannot run
        alone, or what is between is too little."""
        whole = propagated(module, example_inputs, owned=False)
        whole = complex_parts.apart(whole) or whole
        self._takes = [n.name for n in whole.graph.nodes if n.op == "placeholder"]
        fakes = dict(zip(self._takes, example_inputs, strict=True))
        (returned,) = [n for n in whole.graph.nodes if n.op == "output"]
        self._gives = [getattr(r, "name", None) for r in returned.args[0]]
        parts, runs, refused = _compiled(whole, fakes, refusal, compile_piece)
        self._steps = _steps(parts, runs, set(self._gives))
        self._ops = sorted({str(n.target) for n in refused})
        self.compiled = [run for piece, run in zip(parts, runs) if not piece.is_foreign]

    def told(self, refusal):
        """What a user is told of it."""
        count = len(self.compiled)
        ours = "one compiled piece" if count == 1 else f"{count} compiled pieces"
        return f"this backward runs as {ours}, and PyTorch runs {', '.join(self._ops)}: {refusal}"

    def __call__(self, inputs):
        values = dict(zip(self._takes, inputs, strict=True))
        inputs.clear()
        self.compiled[0].end_forward()
        seen = getattr(watching.of_thread, "runs", None)
        watching.of_thread.runs = None  # no piece is the backward that autograd's node could run
        try:
            for step in self._steps:
                given = [values[name] for name in step.inputs]
                for name in step.over:
                    values.pop(name, None)
                made = _run_ops(step.run, given) if step.is_foreign else step.run(given)
                del given
                values.update(zip(step.outputs, made, strict=True))
        finally:
            watching.of_thread.runs = seen
        return [None if name is None else values[name] for name in self._gives]


@torch.no_grad()
def _run_ops(module, given):
    """In the dtypes of the graph, whatever autocast the caller of backward() is in."""
    with torch._C._DisableAutocast():
        return module(*given)


def _compiled(whole, fakes, refusal, compile_piece):
    """(pieces, what runs each, the nodes that are refused), refusals of single ops being found in
    turn."""
    refused = pieces.foreign_ops(whole.graph) | _called(whole.graph, refusal.node)
    while True:
        foreign = set(refused)
        parts = pieces.cut(whole, foreign)
        if all(piece.is_foreign for piece in parts) or not all(map(pieces.runs_alone, foreign)):
            raise refusal
        try:
            runs = [
                piece.module
                if piece.is_foreign
                else compile_piece(
                    piece.module, [fakes.get(n.name, n.meta["val"]) for n in piece.inputs]
                )
                for piece in parts
            ]
            return parts, runs, refused
        except ExportError as another:
            more = _called(whole.graph, another.node) - refused
            if not more:
                raise
            refused |= more


def _called(graph, name):
    return {n for n in graph.nodes if n.name == name and n.op == "call_function"}


def _steps(parts, runs, results):
    steps, read_later = [], set(results)
    for piece, run in reversed(list(zip(parts, runs, strict=True))):
        inputs, outputs = ([n.name for n in nodes] for nodes in (piece.inputs, piece.outputs))
        over = [name for name in inputs if name not in read_later]
        steps.append(_Step(run, piece.is_foreign, inputs, outputs, over))
        read_later.update(inputs)
    return steps[::-1]
