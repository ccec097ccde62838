"""Mixtures of experts of transformers train through the backend on the CPU: beside eager, and their
first gradients beside float64.

In bf16 their experts' matmuls are torch._grouped_mm, in float64 transformers' own op in its place.
In FP8 they are torchao's, of which PyTorch has no kernels on the CPU: stand-ins multiply the
dequantised operands.
"""

import contextlib
import copy
import dataclasses
from unittest import mock

import command
import fp8_experts
import moe_models
import pytest
import routing
import torch
from backend_training import interpreted_forwards
from retrograd.backend import backend

STEPS, RATE = 5, 0.01
# By precision, how far two losses may lie from each other, relative: in float64 by fp32, in which
# losses are taken. Two numbers that bf16 tells apart by 2^-9 get different codes in FP8, whose steps
# are 2^-4, once in 2^5: by the root of the mean square the codes differ by the root of 2^-9 2^-4.
ROUNDING = {"float64": 1e-6, "bf16": 2**-9, "fp8": 2**-6.5}


@dataclasses.dataclass
class Trained:
    losses: list  # before each step
    first: dict  # the first step's gradients, by parameter


@dataclasses.dataclass
class Case:
    precision: str
    ours: Trained
    eager: Trained
    exact: dict  # the first step's gradients in float64, by parameter


@contextlib.contextmanager
def _experts_in(precision):
    """FP8 in the place of grouped matmuls, in that precision."""
    if precision != "fp8":
        yield
        return
    with mock.patch("transformers.integrations.moe._grouped_mm", fp8_experts.grouped_matmul):
        yield


def _gradients(model):
    return {n: p.grad.clone() for n, p in model.named_parameters() if p.grad is not None}


def _train(model, run, ids, around=contextlib.nullcontext):
    """Steps of gradient descent on weights in float64, of which the model's are copies. around(): a
    context of each forward."""
    masters = [p.detach().double() for p in model.parameters()]
    losses, first = [], None
    for _ in range(STEPS):
        model.zero_grad()
        with around():
            loss = run(input_ids=ids, labels=ids).loss
        loss.backward()
        losses.append(loss.item())
        first = first or _gradients(model)
        with torch.no_grad():
            for master, parameter in zip(masters, model.parameters()):
                if parameter.grad is not None:
                    master -= RATE * parameter.grad.double()
                    parameter.copy_(master)
    return Trained(losses, first)


def _exact(model, ids, around):
    """The first step's gradients in float64, whatever the model is in."""
    model = model.double()
    with around():
        loss = model(input_ids=ids, labels=ids).loss
    loss.backward()
    return _gradients(model)


def _case(name, precision):
    torch._dynamo.reset()
    torch.manual_seed(1)
    ours = moe_models.MODELS[name]()
    ours = ours.double() if precision == "float64" else ours.bfloat16()
    eager, exact = copy.deepcopy(ours), copy.deepcopy(ours)
    if precision != "fp8":  # by experts, one after the other
        exact.set_experts_implementation("eager")
    if precision == "float64":  # of which torch._grouped_mm has no kernel
        eager.set_experts_implementation("eager")
    ids, choices = torch.randint(64, (2, 16)), routing.Choices()
    with _experts_in(precision):
        beside = _train(eager, eager, ids, choices.record)
        with interpreted_forwards(choices.replays()):
            run = torch.compile(ours, backend=backend, options={"require_full": True})
            trained = _train(ours, run, ids)
        return Case(precision, trained, beside, _exact(exact, ids, choices.replays()))


@pytest.fixture(scope="module", params=[(n, p) for n in moe_models.MODELS for p in ROUNDING],
                ids="-".join)  # fmt: skip
def case(request, grouped_on_the_host):
    return _case(*request.param)


@command.needs_retrograd
def test_losses_are_eagers(case):
    """Of steps from which the models learn several times what rounding hides."""
    bound = ROUNDING[case.precision] * case.eager.losses[0]
    assert case.eager.losses[0] - case.eager.losses[-1] > 5 * bound
    assert case.ours.losses == pytest.approx(case.eager.losses, rel=0, abs=bound)


def _errors(gradients, exact):
    """||g - exact|| / ||exact||, by parameter."""
    return {n: ((gradients[n].double() - e).norm() / e.norm()).item() for n, e in exact.items()}


@command.needs_retrograd
def test_first_gradients_are_as_near_to_float64_as_eagers(case):
    """Both round what they store, in other places: their errors are of one size. In float64 routers
    and norms are in fp32."""
    assert set(case.ours.first) == set(case.eager.first) == set(case.exact)
    assert all(e.norm() > 0 for e in case.exact.values())
    ours, eager = (_errors(side.first, case.exact) for side in (case.ours, case.eager))
    for name, error in ours.items():
        assert error <= max(2 * eager[name], 1e-5), name
