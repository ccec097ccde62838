"""torch.compile(backend="retrograd") against eager, on the CPU: what training loops do with it."""

import copy
import pickle
import threading

import pytest
import torch
from backend_training import FULL, backend_tests, check, network, pair, runs_of_ours
from retrograd.backend import backend
from torch import nn
from torch.nn import functional as F


@pytest.fixture(autouse=True)
def fresh():
    with backend_tests():
        yield


def test_losses_and_gradients_of_a_training_run_are_those_of_eager():
    ours, eager = pair()
    optimizers = [torch.optim.AdamW(m.parameters(), lr=0.01) for m in (ours, eager)]
    for _ in range(5):
        x, y = torch.randn(6, 8), torch.randint(4, (6,))
        losses = []
        for model, optimizer in zip((ours, eager), optimizers, strict=True):
            optimizer.zero_grad()
            losses.append(F.cross_entropy(model(x), y))
            losses[-1].backward()
        check(ours, eager)
        assert losses[0].item() == pytest.approx(losses[1].item(), rel=1e-5)
        for optimizer in optimizers:
            optimizer.step()


def test_gradients_accumulate_over_micro_steps():
    ours, eager = pair()
    for _ in range(3):
        x = torch.randn(6, 8)
        for model in (ours, eager):
            model(x).square().mean().backward()
    check(ours, eager)


def test_two_forwards_then_two_backwards():
    ours, eager = pair()
    xs = torch.randn(2, 6, 8)
    for model in (ours, eager):
        first, second = (model(x).square().mean() for x in xs)
        second.backward()
        first.backward()
    check(ours, eager)


@pytest.mark.parametrize("before", [0, 1])
def test_a_graph_may_be_kept_and_run_again(before):
    """From the first backward on, or first at a later one."""
    ours, eager = pair()
    x = torch.randn(6, 8)
    for model in (ours, eager):
        for _ in range(before):
            model(x).sum().backward()
        loss = model(x).square().mean()
        loss.backward(retain_graph=True)
        loss.backward()
    check(ours, eager)


def test_gradients_of_inputs_and_of_a_subset():
    ours, eager = pair()
    x = torch.randn(6, 8, requires_grad=True)
    mine, theirs = (torch.autograd.grad(m(x).square().mean(), x)[0] for m in (ours, eager))
    torch.testing.assert_close(mine, theirs)


def test_frozen_parameters_have_no_gradient():
    model = network()
    model[0].weight.requires_grad_(False)
    ours, eager = pair(model)
    x = torch.randn(6, 8)
    for m in (ours, eager):
        m(x).sum().backward()
    assert model[0].weight.grad is None
    check(ours, eager)


def test_tied_weights_have_one_gradient():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(11, 8)

        def forward(self, ids):
            return F.linear(self.embedding(ids), self.embedding.weight)

    ours, eager = pair(Tied())
    ids = torch.randint(11, (3, 5))
    for m in (ours, eager):
        F.cross_entropy(m(ids).flatten(0, 1), ids.flatten()).backward()
    check(ours, eager)


def test_unused_and_several_outputs():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(8, 4), nn.Linear(8, 4)

        def forward(self, x):
            return self.a(x).tanh(), self.b(x).sigmoid()

    ours, eager = pair(Two())
    x = torch.randn(6, 8)
    for m in (ours, eager):
        m(x)[1].square().sum().backward()  # nothing reads the first
    for parameter in eager.a.parameters():
        parameter.grad = torch.zeros_like(parameter)  # AOTAutograd's answer, with Inductor as well
    check(ours, eager)


def test_tangents_that_are_not_contiguous():
    ours, eager = pair()
    x, dy = torch.randn(6, 8), torch.randn(4, 6).t()
    for m in (ours, eager):
        m(x).backward(dy)
        m(x).backward(torch.ones(()).expand(6, 4))
    check(ours, eager)


def test_inputs_that_are_views_of_one_tensor_and_not_contiguous():
    ours, eager = pair()
    base = torch.randn(8, 13)
    for m in (ours, eager):
        (m(base[:, 1:7].t()) + m(base[:, 2:8].t())).square().mean().backward()
    check(ours, eager)


def test_channels_last_networks():
    model = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3, 2))
    ours, eager = pair(model.to(memory_format=torch.channels_last))
    x = torch.randn(2, 3, 12, 12).to(memory_format=torch.channels_last)
    for m in (ours, eager):
        m(x).square().mean().backward()
    check(ours, eager, tolerance=2e-4)


def test_graph_breaks_give_a_backward_each(monkeypatch):
    class Broken(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = network(), network(4)

        def forward(self, x):
            x = self.a(x)
            torch._dynamo.graph_break()
            return self.b(x)

    runs = runs_of_ours(monkeypatch)
    ours, eager = pair(Broken())
    x = torch.randn(6, 8)
    for m in (ours, eager):
        m(x).square().mean().backward()
    check(ours, eager)
    assert len(runs) == 2


def test_equal_layers_share_a_program(monkeypatch):
    runs = runs_of_ours(monkeypatch)
    blocks = nn.ModuleList(network() for _ in range(2))
    x = torch.randn(6, 8)
    for block in blocks:
        seen = {**FULL, "direct_gradients": False}  # all runs are Python's
        torch.compile(block, backend=backend, options=seen)(x).sum().backward()
    assert runs[0].program is runs[1].program


def test_no_grad_and_eval():
    ours, eager = pair(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5)))
    x = torch.randn(6, 8)
    with torch.no_grad():
        ours(x), eager(x)
    ours.eval(), eager.eval()
    torch.testing.assert_close(ours(x), eager(x), rtol=1e-3, atol=1e-3)
    for m in (ours, eager):
        m(x).square().mean().backward()
    check(ours, eager, tolerance=1e-3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_and_a_scaler(dtype):
    ours, eager = pair()
    x, y = torch.randn(32, 8), torch.randint(4, (32,))
    for m in (ours, eager):
        scaler = torch.amp.GradScaler("cpu", enabled=dtype == torch.float16)
        optimizer = torch.optim.SGD(m.parameters(), lr=0.1)
        with torch.autocast("cpu", dtype):
            loss = F.cross_entropy(m(x).float(), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
    check(ours, eager, tolerance=2e-2)


@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpointing(reentrant):
    from torch.utils.checkpoint import checkpoint

    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.inner = nn.Linear(8, 8), network()

        def forward(self, x):
            return checkpoint(self.inner, self.first(x), use_reentrant=reentrant)

    ours, eager = pair(Checkpointed())
    x = torch.randn(6, 8)
    for m in (ours, eager):
        m(x).square().mean().backward()
    check(ours, eager)


def test_dropout_as_captured():
    class Dropped(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 4)

        def forward(self, x):
            return self.b(F.dropout(self.a(x).relu(), 0.5))

    ours, _ = pair(Dropped())
    x = torch.randn(64, 8)
    y = ours(x)
    y.sum().backward()
    # dW of the last layer is what dropout left of its input, summed: found from the forward.
    dropped = torch.linalg.lstsq(ours.b.weight.detach(), (y - ours.b.bias).detach().t()).solution
    assert dropped.shape == (16, 64)
    zero = (ours.a.weight.grad.abs().sum(1) == 0).sum()
    assert zero < 16 and ours.b.weight.grad.abs().sum() > 0


def test_hooks_are_called_with_the_gradients():
    ours, eager = pair()
    seen = [], []
    x = torch.randn(6, 8)
    for m, told in zip((ours, eager), seen, strict=True):
        parameters = list(m.parameters())
        parameters[0].register_hook(lambda g, told=told: told.append(g.norm()))
        parameters[-1].register_post_accumulate_grad_hook(
            lambda p, told=told: told.append(p.grad.norm())
        )
        m(x).square().mean().backward()
    assert len(seen[0]) == 2
    torch.testing.assert_close(sorted(seen[0]), sorted(seen[1]))


def test_threads_run_one_program():
    ours, eager = pair()
    xs = [torch.randn(6, 8, requires_grad=True) for _ in range(4)]
    ours(xs[0]).square().mean().backward()
    expected = [torch.autograd.grad(eager(x).square().mean(), x)[0] for x in xs]
    found = [None] * len(xs)

    def work(i):
        for _ in range(20):
            (found[i],) = torch.autograd.grad(ours(xs[i]).square().mean(), xs[i])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(xs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.testing.assert_close(found, expected)


def test_copies_and_states_of_compiled_models():
    ours, eager = pair()
    x = torch.randn(6, 8)
    ours(x).sum().backward()
    twin = copy.deepcopy(ours)
    twin.load_state_dict(pickle.loads(pickle.dumps(ours.state_dict())))
    twin.zero_grad()
    twin(x).square().mean().backward()
    eager(x).square().mean().backward()
    check(twin, eager)


def test_the_functional_form():
    w = torch.randn(8, 4, requires_grad=True)
    f = torch.compile(lambda x: (x @ w).tanh().sum(), backend=backend, options=FULL)
    x = torch.randn(6, 8)
    f(x).backward()
    (expected,) = torch.autograd.grad((x @ w).tanh().sum(), w)
    torch.testing.assert_close(w.grad, expected)


def test_sizes_0_and_1():
    for rows in (0, 1):
        torch._dynamo.reset()
        ours, eager = pair()
        x = torch.randn(rows, 8)
        for m in (ours, eager):
            m(x).sum().backward()
        check(ours, eager)
