"""What tests of the backend share: forwards without a compiler, training beside eager."""

import contextlib
import copy
import warnings
from unittest import mock

import torch
from retrograd.backend import backend, compiled, entry, messages
from retrograd.backend.node import extension
from torch import nn

FULL = {"require_full": True}  # options under which nothing may fall back


@contextlib.contextmanager
def interpreted_forwards(around=contextlib.nullcontext):
    """The fx interpreter in the place of Inductor, which takes seconds to compile a forward.
    around(): a context of each run."""

    def interpreted(module, _, **how):
        def run(args):
            given = list(args)
            args.clear()
            with around():
                return torch.fx.Interpreter(module).run(*given)

        run._boxed_call = True
        return run

    uncached = torch._functorch.config.patch(enable_autograd_cache=False)
    with uncached, mock.patch.object(entry, "compile_fx_inner", interpreted):
        yield


@contextlib.contextmanager
def compiled_afresh():
    """What a test runs in that compiles models of its own: nothing is compiled before, forwards are
    interpreted."""
    torch._dynamo.reset()
    torch.manual_seed(0)
    with interpreted_forwards():
        yield
    torch._dynamo.reset()


@contextlib.contextmanager
def backend_tests(forwards=interpreted_forwards):
    """What each test of the backend runs in: a backward that falls back is an error. forwards(): the
    context in which forwards are compiled."""
    assert extension.loaded(wait=True) is not None
    torch._dynamo.reset()
    torch.manual_seed(0)
    with forwards(), warnings.catch_warnings():
        warnings.simplefilter("error", messages.BackwardFallsBack)
        yield
    torch._dynamo.reset()


@contextlib.contextmanager
def node_tests():
    """What each test of autograd's node runs in: the node's module is there, forwards are interpreted."""
    assert extension.loaded(wait=True) is not None, "the module is compiled, or the test is worth nothing"
    torch._dynamo.reset()
    torch.manual_seed(0)
    with interpreted_forwards():
        yield
    torch._dynamo.reset()


def train_beside_eager(model, args, kwargs, loss_of, steps=5, rate=1e-3):
    """Trains the model in double precision, and a copy of it in eager mode.

    Returns (losses of ours, of eager, largest difference of a gradient relative to its parameter's
    largest element, reasons for which backwards fell back).
    """
    model = model.double()
    for module in model.modules():
        if isinstance(module, torch.nn.Dropout):
            module.p = 0.0
    args = [
        a.detach().double().requires_grad_(a.requires_grad) if a.is_floating_point() else a
        for a in args
    ]
    eager = copy.deepcopy(model)
    losses, worst = ([], []), 0.0
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        sides = [(model, torch.compile(model, backend=backend)), (eager, eager)]
        for _ in range(steps):
            for side, (module, run) in enumerate(sides):
                module.zero_grad()
                loss = loss_of(run(*args, **kwargs))
                loss.backward()
                losses[side].append(loss.item())
            worst = max(worst, _difference(model, eager))
            for module, _ in sides:
                with torch.no_grad():
                    for parameter in module.parameters():
                        if parameter.grad is not None:
                            parameter -= rate * parameter.grad
    reasons = [str(w.message) for w in told if w.category is messages.BackwardFallsBack]
    return *losses, worst, reasons


def _difference(model, eager):
    worst = 0.0
    for (name, mine), theirs in zip(model.named_parameters(), eager.parameters(), strict=True):
        if (mine.grad is None) != (theirs.grad is None):
            raise AssertionError(f"{name}: only one side has a gradient")
        if mine.grad is not None and mine.numel():
            # A gradient that is nothing but rounding, as of a bias before batch norm, has no scale.
            scale = max(theirs.grad.abs().max().item(), 1e-4)
            worst = max(worst, (mine.grad - theirs.grad).abs().max().item() / scale)
    return worst


def network(width=8):
    return nn.Sequential(
        nn.Linear(width, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4)
    )  # fmt: skip


def pair(model=None, options=FULL):
    """(compiled, eager): the same model twice."""
    model = model if model is not None else network()
    eager = copy.deepcopy(model)
    return torch.compile(model, backend=backend, options=options), eager


def check(ours, eager, tolerance=2e-5):
    for (name, mine), theirs in zip(ours.named_parameters(), eager.parameters(), strict=True):
        assert (mine.grad is None) == (theirs.grad is None), name
        if mine.grad is not None:
            assert mine.grad.stride() == theirs.grad.stride(), name
            scale = max(theirs.grad.abs().max().item(), 1e-6)
            torch.testing.assert_close(
                mine.grad, theirs.grad, rtol=tolerance, atol=tolerance * scale, msg=name
            )


def runs_of_ours(monkeypatch):
    """A list that grows with each run of a CompiledBackward."""
    runs, call = [], compiled.CompiledBackward.__call__

    def counted(self, inputs):
        runs.append(self)
        return call(self, inputs)

    monkeypatch.setattr(compiled.CompiledBackward, "__call__", counted)
    return runs
