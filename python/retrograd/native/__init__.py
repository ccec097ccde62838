"""libretrograd in Python: graphs, plans and executables, without PyTorch.

    graph = Graph.load("model.bwd.pb")
    backward = Executable(graph, Device("cuda"))
    backward.run(inputs, outputs)

Failures of the library are `Failure`, with a code and a message.
"""

from retrograd.native.builder import Builder, Value
from retrograd.native.device import Device, Memory
from retrograd.native.executable import Executable
from retrograd.native.graph import Graph, Tensor
from retrograd.native.library import NAME, Failure, find, load
from retrograd.native.plan import Cancellation, Plan

__all__ = [
    "Builder", "Cancellation", "Device", "Executable", "Failure", "Graph", "Memory", "NAME",
    "Plan", "Tensor", "Value", "find", "load",
]  # fmt: skip
