"""Complex values as pairs of real ones, beside what PyTorch makes of them."""

import copy
import random
import warnings

import pytest
import torch
from backend_training import check, compiled_afresh
from retrograd import complex_parts
from retrograd.backend import backend, messages
from torch import nn

aten = torch.ops.aten
SHAPE = (2, 3)
# Ops of inputs and results, which stay complex.
AT_THE_EDGE = (
    aten.resolve_conj.default, aten.view_as_real.default, aten.view_as_complex.default,
)  # fmt: skip


@pytest.fixture
def fresh():
    with compiled_afresh():
        yield


class _Writer:
    """A graph whose nodes know what they are of examples."""

    def __init__(self, chooses):
        self.graph, self.chooses = torch.fx.Graph(), chooses
        self.real, self.complex = [], []

    def add(self, node, value):
        node.meta["val"] = value
        (self.complex if value.is_complex() else self.real).append(node)

    def given(self, name, value):
        self.add(self.graph.placeholder(name), value)

    def call(self, op, *args):
        values = torch.fx.map_arg(args, lambda n: n.meta["val"])
        self.add(self.graph.call_function(op, args), op(*values))

    def any_op(self):
        chooses = self.chooses
        z, w = chooses.choice(self.complex), chooses.choice(self.complex)
        x = chooses.choice(self.real)
        ways = [
            lambda: self.call(aten.mul.Tensor, z, w),
            lambda: self.call(aten.mul.Tensor, z, x),
            lambda: self.call(aten.mul.Tensor, x, z),
            lambda: self.call(aten.mul.Tensor, z, 0.5),
            lambda: self.call(aten.div.Tensor, z, 3.0),
            lambda: self.call(aten.add.Tensor, z, w),
            lambda: self.call(aten.sub.Tensor, z, w),
            lambda: self.call(aten.add.Tensor, z, 2),
            lambda: self.call(aten.sub.Tensor, z, 0.5 - 0.25j),
            lambda: self.call(aten._conj.default, z),
            lambda: self.call(aten.neg.default, z),
            lambda: self.call(aten.complex.default, x, chooses.choice(self.real)),
            lambda: self.call(aten.complex.default, *self._broadcast(x)),
            lambda: self.call(aten.view.default, z, [2, 3]),
            lambda: self.call(aten.permute.default, self._permuted(z), [1, 0]),
            lambda: self._turned_in_reals(z),
            lambda: self._read(z),
            lambda: self._read(z, 1),
        ]
        chooses.choice(ways)()

    def _broadcast(self, x):
        row = self.graph.call_function(aten.slice.Tensor, (x, 0, 0, 1))
        row.meta["val"] = x.meta["val"][:1]
        return self.chooses.sample((x, row), 2)

    def _permuted(self, z):
        self.call(aten.permute.default, z, [1, 0])
        return self.complex.pop()

    def _turned_in_reals(self, z):
        """As sums of complex values are written: in real numbers, part after part."""
        parts = self.graph.call_function(aten.view.dtype, (z, torch.float64))
        parts.meta["val"] = z.meta["val"].resolve_conj().contiguous().view(torch.float64)
        turned = self.graph.call_function(aten.mul.Tensor, (parts, 2.0))
        turned.meta["val"] = parts.meta["val"] * 2.0
        self.call(aten.view.dtype, turned, torch.complex128)

    def _read(self, z, part=0):
        pairs = self.graph.call_function(aten.view_as_real.default, (z,))
        pairs.meta["val"] = torch.view_as_real(z.meta["val"].resolve_conj())
        self.call(aten.select.int, pairs, -1, part)


@pytest.mark.parametrize("seed", range(60))
def test_a_random_graph_gives_the_same_in_parts(seed):
    chooses = random.Random(seed)
    torch.manual_seed(seed)
    writer = _Writer(chooses)
    given = [
        torch.randn(SHAPE, dtype=torch.float64),
        torch.randn(SHAPE, dtype=torch.complex128),
        torch.randn(SHAPE, dtype=torch.float64),
    ]
    for i, value in enumerate(given):
        writer.given(f"given_{i}", value)
    for _ in range(chooses.randrange(1, 30)):
        writer.any_op()
    results = [*chooses.sample(writer.complex, 1), None, *writer.real[-3:]]
    writer.graph.output(tuple(results))
    apart = complex_parts.apart(torch.fx.GraphModule({}, writer.graph))
    for got, node in zip(apart(*given), results, strict=True):
        if node is None:
            assert got is None
        else:
            torch.testing.assert_close(got, node.meta["val"].resolve_conj(), rtol=1e-12, atol=1e-12)
    for node in apart.graph.nodes:
        if node.op == "call_function" and node.target not in AT_THE_EDGE:
            assert not node.meta["val"].is_complex()


def _module(op, *extra, **named):
    graph = torch.fx.Graph()
    z = graph.placeholder("z")
    z.meta["val"] = torch.randn(SHAPE, dtype=torch.complex64)
    made = graph.call_function(op, (z, *extra), named)
    made.meta["val"] = op(z.meta["val"], *extra, **named)
    graph.output((made,))
    return torch.fx.GraphModule({}, graph)


def test_what_has_no_form_in_parts_stays_whole():
    assert complex_parts.apart(_module(aten.exp.default)) is None
    assert complex_parts.apart(_module(aten.abs.default)) is None
    assert complex_parts.apart(_module(aten.mul.Tensor, 1j)) is None
    assert complex_parts.apart(_module(aten.view.dtype, torch.int32)) is None
    assert complex_parts.apart(_module(aten.view.dtype, torch.float64)) is None
    assert complex_parts.apart(_module(aten.sum.dim_IntList, [0], dtype=torch.complex128)) is None


def test_a_sum_down_a_broadcast_part_counts_it_each_time():
    graph = torch.fx.Graph()
    x, y = (graph.placeholder(name) for name in "xy")
    x.meta["val"], y.meta["val"] = torch.randn(4, 6), torch.randn(1, 6)
    z = graph.call_function(aten.complex.default, (x, y))
    z.meta["val"] = torch.complex(x.meta["val"], y.meta["val"])
    total = graph.call_function(aten.sum.dim_IntList, (z, [0]))
    total.meta["val"] = z.meta["val"].sum(0)
    graph.output((total,))
    (got,) = complex_parts.apart(torch.fx.GraphModule({}, graph))(x.meta["val"], y.meta["val"])
    torch.testing.assert_close(got, total.meta["val"])


def test_a_graph_without_complex_values_is_left_alone():
    graph = torch.fx.Graph()
    graph.placeholder("x").meta["val"] = torch.randn(SHAPE)
    graph.output(())
    assert complex_parts.apart(torch.fx.GraphModule({}, graph)) is None


class _Turned(nn.Module):
    """Positions as complex numbers that features are multiplied by; the numbers are learned or not."""

    def __init__(self, learned, between=torch.clone):
        super().__init__()
        self.between = between
        self.layers = nn.ModuleList(
            nn.Sequential(nn.LayerNorm(16), nn.Linear(16, 16), nn.GELU()) for _ in range(3)
        )
        turns = torch.polar(torch.ones(7, 8), torch.randn(7, 8))
        self.turns = nn.Parameter(turns, requires_grad=learned)

    def forward(self, x):
        for layer in self.layers:
            y = torch.view_as_complex(layer(x).view(*x.shape[:-1], 8, 2))
            x = x + torch.view_as_real(self.between(y) * self.turns).flatten(-2)
        return x.square().mean()


@pytest.mark.parametrize("between", [torch.tanh, torch.sigmoid, lambda y: 1 - y])
def test_complex_functions_between_have_the_gradients_of_eager(fresh, between):
    model = _Turned(learned=False, between=between)
    eager = copy.deepcopy(model)
    x = torch.randn(2, 7, 16)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        torch.compile(model, backend=backend)(x).backward()
    eager(x).backward()
    check(model, eager)


@pytest.mark.parametrize("learned", [False, True])
def test_complex_positions_leave_a_backward_in_one_piece(fresh, learned):
    model = _Turned(learned)
    eager = copy.deepcopy(model)
    ours = torch.compile(model, backend=backend)
    x = torch.randn(2, 7, 16)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        ours(x).backward()
    (text,) = [str(w.message) for w in told if w.category is messages.BackwardFallsBack]
    assert "runs as one compiled piece" in text
    eager(x).backward()
    check(ours, eager)
