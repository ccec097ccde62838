"""What forwards saved, as backwards find it: in other strides, dtypes or on other devices, subclasses
of tensors, tensors that were written. Against eager, on the CPU.
"""

import pytest
import torch
from backend_training import FULL, backend_tests, check, pair, runs_of_ours
from retrograd import dtypes, schema
from retrograd.backend import arrived, compiled, entry, settings
from retrograd.certain_integers import are_certain
from retrograd.errors import ExportError
from torch import nn
from torch.fx.experimental.proxy_tensor import make_fx


@pytest.fixture(autouse=True)
def fresh():
    with backend_tests():
        yield


class _Transposed:
    """Saves a tensor as it is, hands back the same values in other strides."""

    @staticmethod
    def unpack(tensor):
        if tensor.dim() != 2:
            return tensor
        return tensor.t().contiguous().t()


def test_saved_tensors_may_come_back_in_other_strides():
    ours, eager = pair()
    x = torch.randn(6, 8)
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, _Transposed.unpack):
        ours(x).square().mean().backward()
    eager(x).square().mean().backward()
    check(ours, eager)


def test_saved_tensors_of_another_dtype_are_refused():
    ours, _ = pair()
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t.double()):
        loss = ours(torch.randn(6, 8)).square().mean()
        with pytest.raises(RuntimeError, match="hook on saved tensors must give back"):
            loss.backward()


@pytest.mark.parametrize("direct", [True, False])
def test_saved_tensors_on_another_device_are_refused(direct):
    """On a GPU they would be read at addresses of the host's."""
    ours, _ = pair(options={**FULL, "direct_gradients": direct})
    with torch.autograd.graph.saved_tensors_hooks(lambda t: t, lambda t: t.to("meta")):
        result = ours(torch.randn(6, 8))
    with pytest.raises(RuntimeError, match=r"on meta where the forward saved .* on cpu"):
        result.square().mean().backward()


def test_scalars_that_nobody_reads_may_be_on_any_device():
    """As the seeds are of PyTorch's efficient attention that drops nothing."""
    seed, x, tangent = torch.zeros((), dtype=torch.int64), torch.randn(6), torch.randn(6)
    module = make_fx(lambda seed, x, tangent: (x * tangent,))(seed, x, tangent)
    compiled = entry.compile_static(module, [seed, x, tangent], [], settings.Settings(**FULL))
    assert compiled.recipe.unread == (0,)
    (gradient,) = compiled([seed.to("meta"), x, tangent])
    torch.testing.assert_close(gradient, x * tangent)
    with pytest.raises(RuntimeError, match="on meta where the forward saved"):
        compiled([seed, x.to("meta"), tangent])


def test_inputs_without_others_keep_what_nobody_reads():
    types = [torch.float32] * 3 + [torch.int64] * 2
    recipe = compiled.Recipe(None, [], types, torch.device("cpu"), None, "", unread=(3, 4))
    assert recipe.unread_without({0, 3}) == (2,)


def test_a_backward_on_two_devices_is_refused():
    tensors = [torch.empty(2), torch.empty(2, device="meta")]
    with pytest.raises(ExportError, match="on cpu, meta; one device is needed"):
        arrived._device_of(tensors)


def test_subclasses_of_tensors_are_taken_apart_before_they_come():
    from torch.testing._internal.two_tensor import TwoTensor

    ours, eager = pair()
    for model in (ours, eager):
        torch.manual_seed(1)
        x = TwoTensor(torch.randn(6, 8), torch.randn(6, 8))
        model(x).square().mean().backward()
    for mine, theirs in zip(ours.parameters(), eager.parameters(), strict=True):
        for part in ("a", "b"):
            torch.testing.assert_close(getattr(mine.grad, part), getattr(theirs.grad, part))


def test_a_misaligned_saved_tensor_is_copied():
    ours, eager = pair()
    base = torch.randn(6 * 8 + 1)
    x = base[1:].view(6, 8)
    assert x.data_ptr() % 16 == 4
    for m in (ours, eager):
        m(x).square().mean().backward()
    check(ours, eager)


class _Tables(nn.Module):
    """A table of embeddings for each column of indices."""

    def __init__(self):
        super().__init__()
        self.tables = nn.ModuleList(nn.Embedding(50, 8) for _ in range(5))

    def forward(self, x):
        return torch.cat([table(x[:, k]) for k, table in enumerate(self.tables)], 1).tanh()


def test_indices_behind_the_begin_of_a_tensor_are_read_where_they_lie(monkeypatch):
    runs, copies, filled = runs_of_ours(monkeypatch), [], compiled._filled
    monkeypatch.setattr(
        compiled, "_filled", lambda room, t: copies.append(t.shape) or filled(room, t)
    )
    ours, eager = pair(_Tables())
    x = torch.randint(0, 50, (16, 5))
    for _ in range(2):
        for m in (ours, eager):
            m(x).square().sum().backward()
        check(ours, eager)
    assert not copies
    columns = [t for t in runs[0].program.inputs if t.dtype == "i64"]
    assert [t.alignment for t in columns] == [16, 8, 16, 8, 16]
    # Where a run's tensor keeps less than the trace promised, it is copied.
    behind = torch.randint(0, 50, (16 * 5 + 1,))[1:].view(16, 5)
    assert behind.data_ptr() % 16 == 8
    for m in (ours, eager):
        m(behind).square().sum().backward()
    check(ours, eager)


def test_a_parameter_changed_between_forward_and_backward_is_an_error():
    ours, _ = pair()
    loss = ours(torch.randn(6, 8)).square().mean()
    with torch.no_grad():
        list(ours.parameters())[-2].add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


@pytest.mark.parametrize("aligned", [True, False])
def test_places_that_only_shapes_decide_are_made_again(monkeypatch, aligned):
    runs = runs_of_ours(monkeypatch)
    larger = nn.Upsample(scale_factor=2, mode="bilinear", align_corners=aligned)
    ours, eager = pair(nn.Sequential(nn.Conv2d(2, 3, 1), larger, nn.Tanh()))
    x = torch.randn(2, 2, 5, 7)
    for run in (ours, eager):
        run(x).square().sum().backward()
    check(ours, eager)
    nodes = schema.Graph.FromString(bytes(runs[0].recipe.graph)).nodes
    read = {operand.node for node in nodes for operand in node.operands}
    saved = [n.results[0].dtype for i, n in enumerate(nodes) if n.op == "input" and i in read]
    assert "index_add" in {n.op for n in nodes}
    assert set(saved) == {dtypes.number_of(torch.float32)}


def test_integers_of_a_type_that_graphs_have_not_stay_saved():
    class Reversed(nn.Module):
        def __init__(self):
            super().__init__()
            self.weight = nn.Parameter(torch.randn(6))

        def forward(self, x):
            places = torch.arange(6, dtype=torch.int16, device=x.device).flip(0).to(torch.int64)
            return (self.weight * x)[places].sin()

    ours, eager = pair(Reversed())
    x = torch.randn(6)
    for run in (ours, eager):
        run(x).square().sum().backward()
    check(ours, eager)


def _nodes_of(function):
    graph = make_fx(function, tracing_mode="fake")().graph
    return [node for node in graph.nodes if node.op == "call_function"]


@pytest.mark.parametrize(
    "small, large, certain", [(5, 10, True), (7, 9, True), (3, 19, False), (5, 23, False)]
)
def test_places_of_a_resampled_image_are_made_again_if_no_rounding_changes_them(
    small, large, certain
):
    """Of 3 to 19 places the tenth is 1 with a rounded product, and 0 without."""

    def places():
        moved = (torch.arange(large).float() + 0.5) * (small / large) - 0.5
        return torch.floor(moved).to(torch.int64)

    assert are_certain(_nodes_of(places)) == certain


def test_places_behind_a_logarithm_are_not_certain_at_its_powers():
    def buckets(first):
        return torch.log2(torch.arange(first, first + 4).float()).to(torch.int64)

    assert not are_certain(_nodes_of(lambda: buckets(6)))
    assert are_certain(_nodes_of(lambda: buckets(9)))


def test_places_without_floats_are_certain():
    assert are_certain(_nodes_of(lambda: torch.arange(9).flip(0) // 2))
