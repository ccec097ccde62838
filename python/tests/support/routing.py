"""Routers' choices of one run, made again in another: scores that differ by rounding choose alike,
so that what comes behind them can be compared."""

import torch
from torch.utils._python_dispatch import TorchDispatchMode

TOP = torch.ops.aten.topk.default


class Choices:
    """Of the forwards of a run, in their order."""

    def __init__(self):
        self.forwards = []

    def record(self):
        """A context of the next forward, whose choices are kept."""
        self.forwards.append([])
        return _Record(self.forwards[-1])

    def replays(self):
        """A function that gives a context for each forward of another run."""
        forwards = iter(self.forwards)
        return lambda: _Replay(iter(next(forwards)))


class _Record(TorchDispatchMode):
    def __init__(self, places):
        super().__init__()
        self.places = places

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        result = op(*args, **(kwargs or {}))
        if op is TOP:
            self.places.append(result[1])
        return result


class _Replay(TorchDispatchMode):
    """Each topk gives the elements at the recorded places, in their order."""

    def __init__(self, places):
        super().__init__()
        self.places = places

    def __torch_dispatch__(self, op, types, args=(), kwargs=None):
        if op is not TOP:
            return op(*args, **(kwargs or {}))
        x, axis, place = args[0], args[2] if len(args) > 2 else -1, next(self.places)
        return x.gather(axis, place), place
