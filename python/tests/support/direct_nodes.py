"""Models whose backwards autograd's node in C++ runs, beside eager."""

import contextlib
import copy

import torch
from backend_training import FULL
from retrograd.backend import backend
from retrograd.backend.node import extension
from torch import nn

PARAMETERS = 6  # of network()


@contextlib.contextmanager
def runs(backwards, gradients):
    """The block runs so many backwards without Python, with so many gradients of parameters."""
    before = extension.loaded().counts()
    yield
    after = extension.loaded().counts()
    assert (after[0] - before[0], after[1] - before[1]) == (backwards, gradients)


def network(width=8):
    return nn.Sequential(nn.Linear(width, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))


def trained(model=None, *shapes, options=FULL):
    """(compiled, eager), of which the first has run a backward: a plan is known."""
    model = model if model is not None else network()
    eager = copy.deepcopy(model)
    ours = torch.compile(model, backend=backend, options=options)
    for shape in shapes or ((6, 8),):
        total(ours(torch.randn(shape))).backward()
    ours.zero_grad()
    return ours, eager


def of(model):
    """The model itself, whether compiled or not."""
    return getattr(model, "_orig_mod", model)


def total(result):
    results = result if isinstance(result, tuple) else (result,)
    return sum(r.square().mean() for r in results)


def check(ours, eager, tolerance=2e-5):
    for (name, mine), theirs in zip(ours.named_parameters(), eager.parameters(), strict=True):
        assert (mine.grad is None) == (theirs.grad is None), name
        if mine.grad is not None:
            meant = [i for i, n in enumerate(mine.shape) if n != 1]  # strides of one element are not
            strides = [[g.stride(i) for i in meant] for g in (mine.grad, theirs.grad)]
            assert strides[0] == strides[1], name
            torch.testing.assert_close(mine.grad, theirs.grad, rtol=tolerance, atol=tolerance)


def gradients_of(ours, eager, *shape):
    """Those of one backward of ours; eager's lie in its parameters."""
    x = torch.randn(shape or (6, 8))
    for m in (ours, eager):
        total(m(x)).backward()
    return [p.grad for p in ours.parameters()]


def deep():
    return nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(32, 32), nn.GELU())))
