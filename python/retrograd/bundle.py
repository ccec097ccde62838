"""Recorded tensors beside a graph: NAME.safetensors.

Keys: "input/<node id>": the span of the input's storage from its first element, 1-D, in the graph's
strides; "gradient/<output index>": what PyTorch computed, dense and row-major. Metadata: format,
graph, torch.
"""

import json
import struct

import torch
from safetensors import safe_open
from safetensors.torch import save

from retrograd.atomic_file import write_atomically

FORMAT = "retrograd.bundle.v1"


def write(path, name, inputs, gradients):
    """inputs: {node id: 1-D tensor}; gradients: {output index: tensor}; all on the CPU."""
    tensors = {f"input/{i}": t for i, t in inputs.items()}
    tensors |= {f"gradient/{i}": t.contiguous() for i, t in gradients.items()}
    metadata = {"format": FORMAT, "graph": name, "torch": torch.__version__}
    write_atomically(path, _sorted_header(save(tensors, metadata=metadata)))


def _sorted_header(data):
    """The file with its header's keys in order: safetensors leaves the metadata's order to chance,
    and equal bundles shall be equal files. The length of the header stays."""
    (length,) = struct.unpack_from("<Q", data)
    header = json.loads(data[8 : 8 + length])
    text = json.dumps(header, sort_keys=True, separators=(",", ":"), ensure_ascii=False)
    return data[:8] + text.encode().ljust(length) + data[8 + length :]


def read(path):
    """Returns ({node id: 1-D tensor}, {output index: tensor}) of a bundle."""
    inputs, gradients = {}, {}
    with safe_open(path, framework="pt") as file:
        for key in file.keys():
            kind, index = key.split("/")
            (inputs if kind == "input" else gradients)[int(index)] = file.get_tensor(key)
    return inputs, gradients
