"""How far the gradients of a captured backward are from float64's: ours on the host, and PyTorch's."""

import torch
from measure import float64, ours
from retrograd.atomic_file import write_atomically
from retrograd.translate import translate


def of_ours_and_pytorch(captured, library, path):
    """(ours, PyTorch's): the relative error of each gradient, in the order of the outputs. library:
    libretrograd.so; path: NAME.bwd.pb, where the graph is written."""
    graph, constants = translate(captured, path.name.removesuffix(".bwd.pb"))
    write_atomically(path, graph.SerializeToString())
    with ours.Backward(library, path, "host", spec="h200") as backward:
        gradients = ours.room_for(captured.outputs, torch.device("cpu"))
        backward.bind([*(i.recorded for i in captured.inputs), *constants.values()], gradients)
        backward.run()
        references = float64.gradients(captured)
        theirs = [o.recorded for o in captured.outputs]
        return float64.errors(gradients, references), float64.errors(theirs, references)


def tolerance(captured):
    """Of a gradient's relative error: by whether any input is bf16."""
    return 2e-2 if any(i.recorded.dtype == torch.bfloat16 for i in captured.inputs) else 1e-5
