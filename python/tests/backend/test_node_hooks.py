"""What looks on or steps in while autograd's node in C++ runs: hooks, modes, other paths."""

import contextlib

import pytest
import retrograd
import torch
from backend_training import node_tests
from direct_nodes import PARAMETERS, check, of, runs, trained


@pytest.fixture(autouse=True)
def fresh():
    with node_tests():
        yield


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("kind", ["tensor", "accumulated", "node"])
def test_a_parameter_with_a_hook_takes_autograds_way_alone(kind, late):
    ours, eager = trained()
    called = []
    x = torch.randn(6, 8)

    def hook(m):
        weight = of(m)[0].weight
        if kind == "tensor":
            weight.register_hook(lambda g: called.append(1) or 2 * g)
        elif kind == "accumulated":
            weight.register_post_accumulate_grad_hook(lambda p: called.append(1))
        else:
            kept.append(torch.autograd.graph.get_gradient_edge(weight).node)
            kept[-1].register_prehook(lambda grads: called.append(1))

    kept = []
    for m in (ours, eager):
        if not late:
            hook(m)
        loss = m(x).square().mean()
        if late:
            hook(m)
        with runs(1, PARAMETERS - 1) if m is ours else contextlib.nullcontext():
            loss.backward()
    assert len(called) == 2
    check(ours, eager)


def test_a_parameter_with_another_path_takes_autograds_way():
    ours, eager = trained()
    x = torch.randn(6, 8)
    for m in (ours, eager):
        loss = m(x).square().mean() + (of(m)[0].weight ** 2).sum() + of(m)[3].bias.sum()
        with runs(1, PARAMETERS - 2) if m is ours else contextlib.nullcontext():
            loss.backward()
    check(ours, eager)


def test_hooks_on_saved_tensors_are_called():
    ours, eager = trained()
    x = torch.randn(6, 8)
    packed, unpacked = [], []

    def unpack(tensor):
        unpacked.append(1)
        return tensor.clone()

    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(1) or t, unpack):
        loss = ours(x).square().mean()
    with runs(1, PARAMETERS - 2):  # what is packed of a parameter holds its node
        loss.backward()
    eager(x).square().mean().backward()
    assert packed and len(packed) == len(unpacked)
    check(ours, eager)


def test_hooks_on_results_and_their_kept_gradients():
    ours, eager = trained()
    x = torch.randn(6, 8)
    kept = []
    for m in (ours, eager):
        y = m(x)
        y.retain_grad()
        y.register_hook(lambda g: 3 * g)
        y.square().mean().backward()
        kept.append(y.grad)
    torch.testing.assert_close(*kept)
    check(ours, eager)


def test_anomaly_mode_and_dispatch_modes_keep_pythons_way():
    ours, eager = trained()
    x = torch.randn(6, 8)
    with runs(0, 0), torch.autograd.set_detect_anomaly(True):
        ours(x).square().mean().backward()
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counts(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    loss = ours(x).square().mean()
    with runs(0, 0), Counts():
        loss.backward()
    for _ in range(2):
        eager(x).square().mean().backward()
    check(ours, eager)


def test_a_profile_sees_the_runs():
    ours, _ = trained()
    found = retrograd.profile(lambda: ours(torch.randn(6, 8)).square().mean().backward())
    assert len(found.backwards) == 1
    with runs(1, PARAMETERS):
        ours(torch.randn(6, 8)).square().mean().backward()
