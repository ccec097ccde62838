"""Evaluates an exported graph in double by the C++ reference evaluator, which has its own idea of
what each op means."""

import math
import subprocess

import conftest
import interpreter
import numpy
import pytest
import torch
from retrograd import bundle, schema

FOLDER = conftest.BIN
PROGRAM = FOLDER.parent / "tests" / "reference_outputs"

needs_program = pytest.mark.skipif(not PROGRAM.exists(), reason=f"{PROGRAM} is not built")


def evaluate(graph, inputs, folder):
    """The present outputs as float64 tensors by output index; arguments as
    interpreter.evaluate's. Files go into `folder`."""
    graph_path, inputs_path, outputs_path = (folder / n for n in ("graph", "inputs", "outputs"))
    graph_path.write_bytes(graph.SerializeToString(deterministic=True))
    with open(inputs_path, "wb") as file:
        for node in graph.nodes:
            if node.op == "input":
                shape = interpreter.dims_of(node.results[0])
                strides = list(node.input.strides) or interpreter.row_major_strides(shape)
                dense = inputs[node.id].as_strided(shape, strides)
                file.write(dense.double().contiguous().numpy().tobytes())
    command = [PROGRAM, graph_path, inputs_path, outputs_path]
    result = subprocess.run(command, check=False, capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    values = torch.from_numpy(numpy.fromfile(outputs_path, dtype=numpy.float64))
    outputs = {}
    for i, output in enumerate(graph.outputs):
        if not output.absent:
            node = graph.nodes[output.value.node]
            shape = interpreter.dims_of(node.results[output.value.result])
            count = math.prod(shape)
            outputs[i], values = values[:count].reshape(shape), values[count:]
    assert not values.numel()
    return outputs


def evaluate_file(path, bundle_path, folder):
    """(graph, outputs, recorded gradients), the latter two by output index."""
    graph = schema.load(path)
    inputs, gradients = bundle.read(bundle_path)
    return graph, evaluate(graph, inputs, folder), gradients
