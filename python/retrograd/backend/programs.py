"""Executables by graph, device and settings: equal backwards of a process share one."""

import hashlib
import threading
import weakref

import torch

from retrograd import native
from retrograd.backend import messages

# What is known of an input or output in Python and in autograd's node: 470 bytes in Python for those
# of GPT-2, by tracemalloc.
_BYTES_OF_A_TENSOR = 700

_lock = threading.Lock()
_devices = {}  # (name, cache_dir, tuned, tuning_budget_s) -> native.Device
_programs = weakref.WeakValueDictionary()  # key -> Program


class BoundGraph:
    """A graph of numbers that was bound from one with symbols. bytes(graph) writes it."""

    def __init__(self, bound, identity):
        """bound: the native.Graph. identity: bytes that tell it from all other graphs."""
        self.bound, self.identity = bound, identity

    def __bytes__(self):
        return self.bound.serialize()


class Program:
    """A compiled graph. Runs take turns: they share what the executable keeps between runs."""

    def __init__(self, executable, key):
        self.executable, self.key, self.lock = executable, key, threading.Lock()
        self.inputs, self.outputs = executable.inputs, executable.outputs
        self.phases = executable.phases
        # Of host and device, as long as it lives.
        tensors = len(self.inputs) + len(self.outputs)
        self.held_bytes = sum(executable.memory) + tensors * _BYTES_OF_A_TENSOR


def alive():
    """The programs of this process that somebody holds."""
    return list(_programs.values())


def device_name(device):
    """The library's name of a torch.device."""
    if device.type == "cpu":
        return "host"
    index = torch.cuda.current_device() if device.index is None else device.index
    return f"{'hip' if torch.version.hip else 'cuda'}:{index}"


def _device(name, settings):
    key = name, settings.cache_dir, settings.tuned, settings.tuning_budget_s
    if key not in _devices:
        _devices[key] = native.Device(
            name, settings.cache_dir or None, tuned=settings.tuned or None,
            tuning_budget_s=settings.tuning_budget_s,
        )  # fmt: skip
    return _devices[key]


def key_of(graph, device, settings):
    """A text that differs between graphs, devices, settings and libraries.

    graph: bytes, or a BoundGraph.
    """
    text = f"{device_name(device)} {settings.tag()} {native.load().version().decode()} "
    told = graph.identity if isinstance(graph, BoundGraph) else graph
    return hashlib.sha256(text.encode() + told).hexdigest()


def program_of(graph, device, settings, what):
    """The Program of the graph. native.Failure if it cannot be made.

    graph: bytes, or a BoundGraph, whose plan takes over what that of a representative size has
    decided. what: the graph, for people.
    """
    key = key_of(graph, device, settings)
    with _lock:  # what one thread makes, the next one finds
        found = _programs.get(key)
        if found is not None:
            return found
        with messages.progress(f"{what}: loading") as stage:
            executable = native.Executable(
                graph.bound if isinstance(graph, BoundGraph) else native.Graph.deserialize(graph),
                _device(device_name(device), settings),
                spec=settings.spec or None,
                streams=settings.streams,
                caller_workspace=True,
                max_phases=settings.max_phases,
                settings=settings.of_executables(),
                progress=lambda _, doing: stage(f"{what}: {doing}") is None,
                log=lambda line: messages.log.info("%s: %s", what, line),
            )
        program = _programs[key] = Program(executable, key)
        return program
