"""One ATen op as a captured backward of one node: what its row translates to, evaluated."""

import operator

import interpreter
import torch
from retrograd import capture, native, schema, translate


def resolve(name):
    """torch.ops.aten.add.Tensor of "aten.add.Tensor"."""
    op = torch.ops
    for part in name.split("."):
        op = getattr(op, part)
    return op


def translate_op(name, args, kwargs=None, results=None):
    """Returns (graph, inputs, results): the translation of the op on the tensors among its
    arguments. results: what it gives, for an op that this machine cannot execute; else it is run.
    """
    op = resolve(name)
    kwargs = kwargs or {}
    results = op(*args, **kwargs) if results is None else results
    graph, inputs = torch.fx.Graph(), []

    def placeholder(tensor):
        node = graph.placeholder(f"primals_{len(inputs) + 1}")
        node.meta["val"] = tensor
        span = tensor.as_strided((_span(tensor),), (1,))
        inputs.append(
            capture.CapturedInput(
                node, node.name, schema.SAVED, tensor.dtype, tuple(tensor.shape), tensor.stride(),
                0, False, False, span,
            )
        )  # fmt: skip
        return node

    def to_nodes(value):
        if isinstance(value, torch.Tensor):
            return placeholder(value)
        return [to_nodes(v) for v in value] if isinstance(value, (list, tuple)) else value

    node_args = tuple(to_nodes(a) for a in args)
    node = graph.call_function(op, node_args, {k: to_nodes(v) for k, v in kwargs.items()})
    node.meta["val"] = results
    outputs = []
    several = isinstance(results, (list, tuple))
    for i, result in enumerate(results if several else [results]):
        if not isinstance(result, torch.Tensor):
            continue
        output = node
        if several:
            output = graph.call_function(operator.getitem, (node, i))
            output.meta["val"] = result
        outputs.append(capture.CapturedOutput(output, f"output_{i}", result.dtype, (), result))
    graph.output(tuple(o.node for o in outputs))
    captured = capture.CapturedBackward(graph, inputs, outputs, schema.Graph().numerics)
    translated, constants = translate.translate(captured, name)
    assert not constants
    spans = {i: translate.schema_dtype(p.recorded) for i, p in enumerate(inputs)}
    return translated, spans, [o.recorded for o in outputs]


def _span(tensor):
    if not tensor.numel():
        return 0
    return 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride()))


def check(name, args, kwargs=None, results=None, tolerance=None):
    """The translated op computes what PyTorch's op gives; returns its graph. tolerance: absolute and
    relative, if not what the type's rounding allows."""
    graph, inputs, expected = translate_op(name, args, kwargs, results)
    native.Graph.deserialize(graph.SerializeToString()).close()  # Failure where it is not legal
    computed = interpreter.evaluate(graph, inputs)
    assert len(computed) == len(expected)
    for got, want in zip(computed, expected):
        assert got.dtype == want.dtype
        usual = {torch.bfloat16: 8e-3, torch.float64: 1e-12}.get(want.dtype, 2e-6)
        bound = usual if tolerance is None else tolerance
        if want.dtype.itemsize == 1 and want.dtype.is_floating_point:
            got, want = got.float(), want.float()
        torch.testing.assert_close(got, want, rtol=bound, atol=bound, equal_nan=True)
    return graph
