"""Backwards in pieces: what the table has rows for is compiled, PyTorch runs the ops between."""

import copy
import operator
import random
import warnings

import pytest
import torch
from backend_training import check, compiled_afresh
from retrograd.backend import backend, messages, pieces
from torch import nn
from torch.nn import functional as F

aten = torch.ops.aten


@pytest.fixture(autouse=True)
def fresh():
    with compiled_afresh():
        yield


class _Mixed(nn.Module):
    """Layers whose tokens are mixed by Fourier transforms, as FNet's."""

    def __init__(self, layers=2):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 32), nn.GELU(), nn.Linear(32, 16))
            for _ in range(layers)
        )

    def forward(self, x):
        for layer in self.layers:
            x = x + layer(torch.fft.fft2(x, dim=(1, 2)).real)
        return x.square().mean()


class _Turned(nn.Module):
    """Positions as complex numbers that features are multiplied by."""

    def __init__(self):
        super().__init__()
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 16), nn.GELU()) for _ in range(2)
        )
        self.register_buffer("turns", torch.polar(torch.ones(7, 8), torch.randn(7, 8)))

    def forward(self, x):
        for layer in self.layers:
            y = torch.view_as_complex(layer(x).view(*x.shape[:-1], 8, 2))
            x = x + F.silu(torch.view_as_real(y * self.turns).flatten(-2))
        return x.square().mean()


def _told(step):
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        step()
    return [str(w.message) for w in told if w.category is messages.BackwardFallsBack]


@pytest.mark.parametrize("kind", [_Mixed, _Turned])
def test_gradients_around_ops_without_rows_are_those_of_eager(kind):
    model = kind()
    eager = copy.deepcopy(model)
    ours = torch.compile(model, backend=backend)
    xs = [torch.randn(2, 7, 16, requires_grad=True) for _ in range(3)]

    def step():
        for x in xs:
            ours(x).backward()

    (text,) = _told(step)
    assert "compiled piece" in text and "PyTorch runs aten." in text
    for x in xs:
        again = x.detach().clone().requires_grad_()
        eager(again).backward()
        torch.testing.assert_close(x.grad, again.grad)
    check(ours, eager)


def test_a_graph_that_is_kept_runs_again():
    model = _Mixed()
    ours, x = torch.compile(model, backend=backend), torch.randn(2, 7, 16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        loss = ours(x)
        loss.backward(retain_graph=True)
        once = [p.grad.clone() for p in model.parameters()]
        loss.backward()
    for first, p in zip(once, model.parameters(), strict=True):
        torch.testing.assert_close(p.grad, 2 * first)


def test_switched_off_inductor_runs_all_of_it():
    ours = torch.compile(_Mixed(), backend=backend, options={"divided": False})
    (text,) = _told(lambda: ours(torch.randn(2, 7, 16)).backward())
    assert "runs through Inductor" in text


def test_a_backward_that_must_be_whole_is_not_divided():
    ours = torch.compile(_Mixed(), backend=backend, options={"require_full": True})
    with pytest.raises(Exception, match="has no row"):
        ours(torch.randn(2, 7, 16)).backward()


def test_ops_that_draw_numbers_are_left_to_inductor():
    """Their generators are those that the compiler has given them."""
    model, noisy = _Mixed(), nn.Dropout2d(0.5)
    ours = torch.compile(
        lambda x: model(x) + (noisy(x[..., None]) * 0).sum(), backend=backend
    )  # fmt: skip
    (text,) = _told(lambda: ours(torch.randn(2, 7, 16, requires_grad=True)).backward())
    assert "runs through Inductor" in text


class _Read(torch.autograd.Function):
    """Its gradient is that of the buffer as it is when the backward comes here."""

    @staticmethod
    def forward(ctx, x, buffer):
        ctx.buffer = buffer
        return x * 1.0

    @staticmethod
    def backward(ctx, dy):
        return dy * ctx.buffer, None


class _Write(torch.autograd.Function):
    """Its backward adds to the buffer."""

    @staticmethod
    def forward(ctx, x, buffer):
        ctx.buffer = buffer
        return x * 1.0

    @staticmethod
    def backward(ctx, dy):
        ctx.buffer.add_(torch.fft.fft(dy).real)
        return dy, None


def _long(x):
    for _ in range(4):
        x = F.silu(x) * 0.5 + torch.sin(x)
    return x


def test_a_backward_that_writes_a_buffer_keeps_the_order_of_reads_and_writes():
    buffer = torch.randn(8, 64)
    before = buffer.clone()

    def loss(a, b):
        written = _Write.apply(b, buffer)
        x = torch.fft.fft(_long(_Read.apply(_long(a), buffer))).real * 0.01
        return torch.fft.fft(_long(x)).real.square().sum() + written.square().sum()

    def run(function):
        buffer.copy_(before)
        inputs = [t.clone().requires_grad_() for t in (a, b)]
        function(*inputs).backward()
        return [t.grad for t in inputs] + [buffer.clone()]

    a, b = torch.randn(8, 64), torch.randn(8, 64)
    wanted = run(loss)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        got = run(torch.compile(loss, backend=backend))
    for x, y in zip(got, wanted, strict=True):
        torch.testing.assert_close(x, y, rtol=1e-4, atol=1e-4)


def test_pieces_compute_in_the_dtypes_of_the_graph_under_any_autocast():
    def loss(a, b):
        x = torch.fft.fft(_long(a)).real
        x = torch.fft.fft(x @ b).real
        return torch.fft.fft(x @ b).real.square().sum()

    ours = torch.compile(loss, backend=backend)
    found = []
    for autocast in (False, True):
        torch.manual_seed(1)
        inputs = [torch.randn(8, 64, requires_grad=True), torch.randn(64, 64, requires_grad=True)]
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            result = ours(*inputs)
            with torch.autocast("cpu", torch.bfloat16, enabled=autocast):
                result.backward()
        found.append([t.grad for t in inputs])
    for x, y in zip(*found, strict=True):
        assert torch.equal(x, y)


# --- pieces of random graphs -----------------------------------------------------------------------


def _random_graph(chooses, count):
    """A graph of `count` calls over one extent, whose results are some of them and an input."""
    graph = torch.fx.Graph()
    values = [graph.placeholder(name) for name in ("tangents_1", "primals_1", "saved")]
    made = []
    for _ in range(count):
        a, b = (chooses.choice(values[-6:] + values[:1]) for _ in range(2))
        kind = chooses.choice(("add", "mul", "sin", "t", "full", "both"))
        if kind in ("add", "mul"):
            new = graph.call_function(getattr(aten, kind).Tensor, (a, b))
        elif kind == "sin":
            new = graph.call_function(aten.sin.default, (a,))
        elif kind == "t":
            new = graph.call_function(aten.permute.default, (a, [1, 0]))
        elif kind == "full":
            new = graph.call_function(aten.full.default, ([3, 3], 0.5))
        else:
            both = graph.call_function(aten.aminmax.default, (a,), {"dim": 1, "keepdim": True})
            made.append(both)
            new = graph.call_function(operator.getitem, (both, chooses.randrange(2)))
            new = graph.call_function(aten.add.Tensor, (new, b))
        made.append(new)
        values.append(new)
    results = [*chooses.sample(values, 4), None, values[-1]]
    graph.output(results)
    return torch.fx.GraphModule({}, graph), made


def _run(parts, module, given):
    values = dict(zip((n for n in module.graph.nodes if n.op == "placeholder"), given))
    for part in parts:
        made = part.module(*(values[n] for n in part.inputs))
        values.update(zip(part.outputs, made, strict=True))
    (returned,) = [n for n in module.graph.nodes if n.op == "output"]
    return [None if r is None else values[r] for r in returned.args[0]]


@pytest.mark.parametrize("seed", range(120))
def test_the_pieces_of_a_random_graph_make_its_results(seed):
    chooses = random.Random(seed)
    module, calls = _random_graph(chooses, chooses.randrange(1, 80))
    part = chooses.choice((0.02, 0.1, 0.4, 1.0))
    foreign = {n for n in calls if n.target is not operator.getitem and chooses.random() < part}
    asked = set(foreign)
    parts = pieces.cut(module, foreign)
    given = [torch.rand(3, 3, dtype=torch.float64) for _ in range(3)]
    whole = module(*given)
    for got, want in zip(_run(parts, module, given), whole, strict=True):
        assert got is None if want is None else torch.equal(got, want)
    for one, following in zip(parts, parts[1:]):
        assert one.is_foreign != following.is_foreign
    for piece in parts:
        inner = [n for n in piece.module.graph.nodes if n.op == "call_function"]
        assert piece.is_foreign or len(inner) >= pieces._FEWEST
        names = {n.name for n in inner}
        assert piece.is_foreign or names.isdisjoint(n.name for n in asked)
        for crossing in piece.inputs:
            assert crossing.target is not aten.aminmax.default
            views = (aten.full.default, aten.permute.default)
            assert crossing.target not in views or crossing in foreign
