"""Tangents that come to autograd's node in C++: missing, expanded, strided, computed by nobody."""

import copy

import pytest
import torch
from backend_training import FULL, node_tests
from direct_nodes import PARAMETERS, check, network, runs, total, trained
from retrograd import native
from retrograd.backend import absent, backend, programs
from retrograd.backend.settings import Settings
from torch import nn
from torch.nn import functional as F


@pytest.fixture(autouse=True)
def fresh():
    with node_tests():
        yield


def test_tangents_that_are_missing_expanded_or_strided():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = network(), nn.Linear(4, 4)

        def forward(self, x):
            y = self.a(x)
            return y.square().mean(), self.b(y)

    ours, eager = trained(Two())
    x = torch.randn(6, 8)
    uses = [
        lambda loss, y: loss,
        lambda loss, y: y.sum(),
        lambda loss, y: loss + y.sum(),
        lambda loss, y: loss + (y.t().contiguous().t() * y.detach().t().contiguous().t()).sum(),
    ]
    for use in uses:
        use(*ours(x)).backward()  # learned for these tangents
        for m in (ours, eager):
            m.zero_grad()
        with runs(1, PARAMETERS + 2):
            use(*ours(x)).backward()
        use(*eager(x)).backward()
        for mine, theirs in zip(ours.parameters(), eager.parameters(), strict=True):
            expected = torch.zeros_like(theirs) if theirs.grad is None else theirs.grad
            torch.testing.assert_close(mine.grad, expected, rtol=2e-5, atol=2e-5)


class Logits(nn.Module):
    """As language models return them: the loss, and logits that a trainer does not use."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 64)

    def forward(self, x):
        logits = self.b(self.a(x))
        return logits.logsumexp(1).mean(), logits


@pytest.mark.parametrize("dynamic", [False, True])
@pytest.mark.parametrize("failing", ["pays", "without"])
def test_a_program_without_a_tangent_that_fails_leaves_the_other(monkeypatch, failing, dynamic):
    def fail(*_):
        raise native.Failure("RG_INTERNAL", "planted")

    monkeypatch.setattr(absent, "pays", lambda *_: True)
    monkeypatch.setattr(absent, failing, fail)
    model = Logits()
    eager = copy.deepcopy(model)
    ours = torch.compile(model, backend=backend, options=FULL, dynamic=dynamic)
    for _ in range(3):
        x = torch.randn(6, 8)
        for run in (ours, eager):
            run.zero_grad()
            run(x)[0].backward()
        for mine, theirs in zip(model.parameters(), eager.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, theirs.grad, rtol=2e-5, atol=2e-6)


@pytest.mark.parametrize("pays", [True, False])
def test_a_tangent_that_nobody_computes_may_have_a_program_without_it(monkeypatch, pays):
    asked = []
    monkeypatch.setattr(absent, "pays", lambda compiled, inputs: asked.append(inputs) or pays)
    model = Logits()
    eager = copy.deepcopy(model)
    ours = torch.compile(model, backend=backend, options=FULL)
    uses = [lambda loss, y: loss, lambda loss, y: loss + y.sum(), lambda loss, y: y.sum()]
    for use in uses:  # learned
        use(*ours(torch.randn(6, 8))).backward()
    ours.zero_grad()
    with runs(6, 24):
        for use in 2 * uses:
            x = torch.randn(6, 8)
            for m in (ours, eager):
                use(*m(x)).backward()
    assert len(asked) == 2 and all(len(inputs) == 1 for inputs in asked)
    check(ours, eager)


@pytest.mark.parametrize("pays", [True, False])
def test_a_new_size_has_one_program_where_nobody_computes_a_tangent(monkeypatch, pays):
    asked, lengths = [], (7, 9, 30) if pays else (17, 19, 33)  # equal backwards share programs
    monkeypatch.setattr(absent, "pays", lambda compiled, inputs: asked.append(inputs) or pays)
    model = Logits()
    eager = copy.deepcopy(model)
    ours = torch.compile(model, backend=backend, options=FULL, dynamic=True)
    ours(torch.randn(6, 8))[0].backward()
    taken = set()
    for n in lengths:
        before = set(programs.alive())
        ours(torch.randn(n, 8))[0].backward()
        (made,) = set(programs.alive()) - before
        taken.add(len(made.inputs))
    total(ours(torch.randn(lengths[0] + 1, 8))).backward()  # with the tangent
    (made,) = set(programs.alive()) - before - {made}
    assert taken == {len(made.inputs) - int(pays)}
    assert len(asked) == 1
    ours.zero_grad()
    with runs(5, 20):
        for n, use in (*((n, False) for n in (6, *lengths)), (lengths[0] + 1, True)):
            x = torch.randn(n, 8)
            for m in (ours, eager):
                loss, logits = m(x)
                (total((loss, logits)) if use else loss).backward()
    check(ours, eager)


def test_a_program_without_a_tangent_pays_where_it_is_large():
    class Recipe:
        settings = Settings()

    class Compiled:
        recipe, what = Recipe, "a test"

    shape = 1 << 16, 256
    for other, expected in ((shape, True), ((256,), False)):
        g = native.Builder("absent")
        dy = g.input("dy", "f32", shape, kind="tangent")
        dz = g.input("dz", "f32", other, kind="tangent")
        g.output(g.add("exp", g.add("add", dy, dz)), "dx")
        Recipe.graph = g.finish().serialize()
        assert absent.pays(Compiled, [1]) == expected
        assert len(native.Graph.deserialize(absent.with_zeros(Recipe.graph, [1])).inputs) == 1


class _Cached(nn.Module):
    """Attention that hands out its keys and values beside its result, as a cache takes them."""

    def __init__(self):
        super().__init__()
        self.parts = nn.ModuleList(nn.Linear(16, 16) for _ in range(3))

    def forward(self, x, context):
        def heads(part, of):
            return part(of).view(*of.shape[:2], 2, 8).transpose(1, 2)

        q, k, v = (heads(p, of) for p, of in zip(self.parts, (x, context, context), strict=True))
        y = F.scaled_dot_product_attention(q, k, v)
        return y.square().mean(), k, v


@pytest.mark.parametrize("keys", [6, 20])
def test_keys_and_values_that_only_a_cache_takes(keys):
    eager = _Cached()
    model = copy.deepcopy(eager)
    ours = torch.compile(model, backend=backend, options=FULL)
    for _ in range(4):
        x, context = torch.randn(2, 6, 16), torch.randn(2, keys, 16)
        for run in (ours, eager):
            run.zero_grad()
            run(x, context)[0].backward()
        for mine, theirs in zip(model.parameters(), eager.parameters(), strict=True):
            torch.testing.assert_close(mine.grad, theirs.grad, rtol=2e-5, atol=2e-6)
