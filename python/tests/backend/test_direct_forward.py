"""Forwards that run without PyTorch's autograd.Function, against eager, on the CPU: when they do, and
what a caller sees of it: nothing.
"""

import contextlib
import copy
import gc
import weakref

import pytest
import torch
from backend_training import node_tests
from retrograd.backend import backend
from retrograd.backend.node import extension
from torch import nn

FULL = {"require_full": True}
LOOKS = 3  # calls behind which the way of the forward is known


@pytest.fixture(autouse=True)
def fresh():
    with node_tests():
        yield


@contextlib.contextmanager
def forwards(count):
    """The block runs so many forwards without PyTorch's function."""
    before = extension.loaded().forwards()
    yield
    assert extension.loaded().forwards() - before == count


def total(results):
    results = results if isinstance(results, tuple) else (results,)
    return sum(r.square().mean() for r in results if r.requires_grad)


def trained(model, *arguments, options=FULL):
    """(compiled, eager) behind equal steps: how the forward is called is known, if it can be."""
    eager = copy.deepcopy(model)
    ours = torch.compile(model, backend=backend, options=options)
    for _ in range(LOOKS):
        for m in (ours, eager):
            total(m(*arguments)).backward()
    return ours, eager


def check(ours, eager):
    for mine, theirs in zip(ours.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(mine.grad, theirs.grad, rtol=1e-4, atol=1e-4)
    for mine, theirs in zip(ours.buffers(), eager.buffers(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=2e-5, atol=2e-5)


class Network(nn.Module):
    """Buffers that are written, saved results, integers, and a result that needs no gradient."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.last = nn.Linear(8, 16), nn.BatchNorm1d(16), nn.Linear(16, 4)
        self.frozen = nn.Parameter(torch.randn(16), requires_grad=False)

    def forward(self, x):
        hidden = torch.tanh(self.norm(self.first(x)) * self.frozen)
        logits = self.last(hidden)
        return logits.exp(), hidden.sum(), logits.argmax(1), x + 1


def test_results_gradients_and_buffers_are_eagers():
    x = torch.randn(6, 8)
    ours, eager = trained(Network(), x)
    for _ in range(3):
        x = torch.randn(6, 8)
        versions = [b._version for b in ours.buffers()]
        with forwards(1):
            mine = ours(x)
        theirs = eager(x)
        assert [r.requires_grad for r in mine] == [r.requires_grad for r in theirs]
        assert all(b._version > v for b, v in zip(ours.buffers(), versions, strict=True))
        for a, b in zip(mine, theirs, strict=True):
            torch.testing.assert_close(a.detach(), b.detach(), rtol=2e-5, atol=2e-5)
        total(mine).backward()
        total(theirs).backward()
        check(ours, eager)


def test_a_result_that_is_saved_and_used_twice():
    class Exponential(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(8))

        def forward(self, x):
            return (x * self.weight).exp()

    x = torch.randn(6, 8)
    ours, eager = trained(Exponential(), x)
    for m in (ours, eager):
        with forwards(1) if m is ours else contextlib.nullcontext():
            y = m(x)
        (y * y.sin()).sum().backward()
    check(ours, eager)


def test_gradients_of_inputs_a_kept_graph_and_a_second_backward():
    x = torch.randn(6, 8)
    ours, eager = trained(Network(), x)
    inputs = [x.clone().requires_grad_() for _ in range(2)]
    for _ in range(LOOKS):  # with another graph of Dynamo's
        total(ours(inputs[0])).backward()
        total(eager(inputs[1])).backward()
    with forwards(1):
        loss = total(ours(inputs[0]))
    loss.backward(retain_graph=True)
    loss.backward()
    with pytest.raises(RuntimeError, match="backward through the graph a second time"):
        loss.backward()
    loss = total(eager(inputs[1]))
    loss.backward(retain_graph=True)
    loss.backward()
    torch.testing.assert_close(inputs[0].grad, inputs[1].grad, rtol=2e-5, atol=2e-5)
    check(ours, eager)


def test_a_saved_tensor_that_was_written_is_pytorchs_error():
    x = torch.randn(6, 8)
    ours, _ = trained(Network(), x)
    with forwards(1):
        loss = total(ours(x))
    with torch.no_grad():
        ours._orig_mod.last.weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_double_backward_is_refused():
    x = torch.randn(6, 8, requires_grad=True)
    ours, _ = trained(Network(), x)
    with forwards(1):
        loss = total(ours(x))
    (gradient,) = torch.autograd.grad(loss, x, create_graph=True)
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        gradient.sum().backward()


WATCHES = {
    "hooks on saved tensors": lambda: torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t),
    "anomaly mode": lambda: torch.autograd.set_detect_anomaly(True),
    "no gradients": torch.no_grad,
}


@pytest.mark.parametrize("watch", WATCHES)
def test_what_looks_on_sees_pytorchs_function(watch):
    x = torch.randn(6, 8)
    ours, eager = trained(Network(), x)
    with forwards(0), WATCHES[watch]():
        mine = ours(x)
    theirs = eager(x)
    if watch != "no gradients":
        total(mine).backward()
        total(theirs).backward()
    check(ours, eager)
    for _ in range(LOOKS):  # Dynamo may have another graph for it
        total(ours(x)).backward()
    with forwards(1):
        ours(x)


class Linear(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear = nn.Linear(8, 8)


class View(Linear):
    """One result is a view of another."""

    def forward(self, x):
        y = self.linear(x).exp()
        return y, y[0]


class ViewOfArgument(Linear):
    def forward(self, x):
        return self.linear(x), x[0]


class Written(Linear):
    """An argument that has a history is written."""

    def forward(self, x):
        x.mul_(2)
        return self.linear(x)


@pytest.mark.parametrize("model", [View, ViewOfArgument, Written])
def test_a_function_whose_wrapping_does_something_keeps_it(model):
    xs = [torch.randn(6, 8).requires_grad_() for _ in range(2)]
    xs[1].data.copy_(xs[0])
    eager = model()
    ours = torch.compile(copy.deepcopy(eager), backend=backend)
    with forwards(0):
        for _ in range(LOOKS + 1):
            total(ours(xs[0] * 1)).backward()
    for _ in range(LOOKS + 1):
        total(eager(xs[1] * 1)).backward()
    check(ours, eager)
    torch.testing.assert_close(xs[0].grad, xs[1].grad, rtol=1e-4, atol=1e-4)


def test_arguments_that_share_memory():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = nn.Linear(8, 8)
            self.b = nn.Linear(8, 8)
            self.b.weight = self.a.weight

        def forward(self, x, y):
            return self.b(self.a(x)) + y

    x = torch.randn(6, 8)
    ours, eager = trained(Tied(), x, x)
    for m in (ours, eager):
        total(m(x, x)).backward()
    check(ours, eager)


def plan(forward, arguments, checked=(1, 2), beside=(2, 2), differentiable=True):
    """Of a forward that returns one result and saves another tensor."""
    module = extension.loaded()
    return module.Binding(None, 1, 1), module.ForwardPlan(
        forward=forward, backward=None, requires_grad=[a.requires_grad for a in arguments],
        has_gradient=[a.requires_grad for a in arguments], written=[],
        differentiable=[differentiable], num_outputs=2, checked=checked, beside=beside,
    )  # fmt: skip


@pytest.mark.parametrize(
    ("returned", "error"),
    [
        ([torch.ones(1)], "returned 1 tensors in place of 2"),
        ([torch.ones(1), None], "returned what is no tensor"),
        (ValueError("a full device"), "a full device"),
    ],
)
def test_a_forward_that_fails_is_an_error(returned, error):
    def forward(arguments):
        assert not torch.is_grad_enabled()
        if isinstance(returned, Exception):
            raise returned
        return returned

    x = torch.ones(1, requires_grad=True)
    with forwards(0), pytest.raises((RuntimeError, ValueError), match=error):
        extension.loaded().call_forward(*plan(forward, [x]), (x,))
    assert torch.is_grad_enabled()


class Counts(torch.utils._python_dispatch.TorchDispatchMode):
    def __torch_dispatch__(self, function, types, args=(), kwargs=None):
        return function(*args, **(kwargs or {}))


def test_a_result_that_comes_again_has_no_history_of_the_last_time():
    x = torch.ones(1, requires_grad=True)
    same = torch.ones(1)  # as a CUDA graph returns it
    known = plan(lambda arguments: [same, torch.ones(1)], [x], differentiable=False)
    for _ in range(2):
        (result,) = extension.loaded().call_forward(*known, (x,))
        assert result is same
        assert not result.requires_grad
        assert result.grad_fn is None
        result.mul_(torch.ones(1, requires_grad=True))


@pytest.mark.parametrize("checked", [True, False])
def test_a_saved_result_holds_nothing_when_it_goes(checked):
    x = torch.ones(1, requires_grad=True)

    def forward(arguments):
        y = torch.ones(3)
        return [y, y]

    class Mark:
        pass

    places = {"checked": (1, 2), "beside": (2, 2)} if checked else {"checked": (1, 1), "beside": (1, 2)}
    results = extension.loaded().call_forward(*plan(forward, [x], **places), (x,))
    mark = Mark()
    results[0].grad_fn.metadata["mark"] = mark  # goes with the node
    alive = weakref.ref(mark)
    del results, mark
    gc.collect()
    assert alive() is None


def test_other_arguments_and_modes_are_left_to_pytorch():
    x = torch.ones(1, requires_grad=True)
    known = plan(lambda arguments: pytest.fail("it runs"), [x])
    call = extension.loaded().call_forward
    others = [(), (x, x), (x.detach(),), (3,), (torch.nn.Buffer(torch.ones(1)),)]
    with torch.autograd.forward_ad.dual_level():
        others.append((torch.autograd.forward_ad.make_dual(x, torch.ones(1)),))
        assert [call(*known, arguments) for arguments in others] == [None] * len(others)
    with Counts():
        assert call(*known, (x,)) is None
    with torch.inference_mode():
        assert call(*known, (x,)) is None
        made_there = torch.ones(1)
    assert call(*plan(lambda arguments: pytest.fail("it runs"), [made_there]), (made_there,)) is None


def test_what_the_forward_saved_goes_with_its_graph():
    x = torch.randn(6, 8)
    ours, _ = trained(Network(), x)
    for runs_backward in (True, False):
        before = {id(t) for t in gc.get_objects() if type(t) is torch.Tensor}
        with forwards(1):
            loss = total(ours(x))
        saved = [
            weakref.ref(t) for t in gc.get_objects() if type(t) is torch.Tensor and id(t) not in before
        ]
        if runs_backward:
            loss.backward()
        del loss
        gc.collect()
        gradients = {id(p.grad) for p in ours.parameters()}
        assert not [r() for r in saved if r() is not None and id(r()) not in gradients]


def test_the_option_leaves_it_out():
    x = torch.randn(6, 8)
    ours, eager = trained(Network(), x, options={**FULL, "direct_forward": False})
    with forwards(0):
        total(ours(x)).backward()
    total(eager(x)).backward()
    check(ours, eager)
