"""What bench/ measures with: the clock of GPU kernels, the float64 reference, both sides."""

import pytest
import torch
from built_library import LIBRARY, needs_library
from measure import float64, ours, pytorch, watch
from retrograd.export import captured_backwards
from torch import nn


def test_idle_time_is_what_no_kernel_covers():
    events = [
        (0, 5, "a kernel of before"), (5, 100, "spin_kernel"),
        (110, 120, "k"), (115, 130, "m"), (150, 160, "k"), (110, 160, "## Call CompiledFxGraph ##"),
    ]  # fmt: skip
    figures = watch.of_events(events)
    assert figures["count"] == 3
    assert figures["busy_ms"] == pytest.approx(0.030)
    assert figures["span_ms"] == pytest.approx(0.050)
    assert figures["idle"] == pytest.approx(0.4)
    assert figures["largest"][0] == {"name": "k", "count": 2, "ms": pytest.approx(0.020)}


class Small(nn.Module):
    """A norm, attention with fewer heads of keys than of queries, a table that is looked up."""

    def __init__(self):
        super().__init__()
        self.table, self.norm = nn.Embedding(7, 32), nn.LayerNorm(32)
        self.qkv = nn.Linear(32, 64)

    def forward(self, ids):
        x = self.norm(self.table(ids))
        q, k, v = self.qkv(x).split((32, 16, 16), -1)
        q, k, v = (t.view(2, 5, -1, 8).transpose(1, 2) for t in (q, k, v))
        y = nn.functional.scaled_dot_product_attention(q, k, v, is_causal=True, enable_gqa=True)
        return (torch.tanh(y) ** 2).sum()


def captured(model, *args):
    (result,) = captured_backwards(model, args, keep_on_device=True, joint_passes=True)
    return result


def test_the_float64_reference_is_what_autograd_gives_in_float64():
    torch.manual_seed(3)
    model, ids = Small(), torch.randint(0, 7, (2, 5))
    references = float64.gradients(captured(model, ids))
    wide = Small().double()
    wide.load_state_dict(model.state_dict())
    wide(ids).backward()
    expected = [p.grad for p in wide.parameters()]
    found = [r for r in references if r is not None]
    assert all(r.dtype == torch.float64 for r in found)
    # What the forward saved is fp32.
    assert max(float64.errors(found, expected)) < 1e-5


def test_errors_of_gradients_that_are_zero_are_relative_to_all():
    references = [torch.tensor([3.0, 4.0]), torch.zeros(2)]
    found = float64.errors([torch.tensor([3.0, 4.5]), torch.tensor([0.0, 5e-6])], references)
    assert found == pytest.approx([0.1, 0.1])


def test_what_a_backward_is_given_is_counted_without_its_tangents():
    module = captured(Small(), torch.zeros(2, 5, dtype=torch.int64)).fx_graph.owning_module
    figures = pytorch.inputs_of(module)
    placeholders = [n for n in module.graph.nodes if n.op == "placeholder"]
    assert figures["tensors"] == len(placeholders) - 1 == len(figures["lines"])
    assert figures["bytes"] >= 2 * 5 * 64 * 4


def small_backward():
    torch.manual_seed(5)
    result = captured(Small(), torch.randint(0, 7, (2, 5)))
    return result, [i.recorded for i in result.inputs]


@needs_library
def test_ours_runs_in_this_process_on_the_captured_tensors(tmp_path):
    from retrograd.atomic_file import write_atomically
    from retrograd.translate import translate

    result, inputs = small_backward()
    graph, constants = translate(result, "small")
    write_atomically(tmp_path / "small.bwd.pb", graph.SerializeToString())
    with ours.Backward(LIBRARY, tmp_path / "small.bwd.pb", "host") as backward:
        gradients = ours.room_for(result.outputs, torch.device("cpu"))
        backward.bind([*inputs, *constants.values()], gradients)
        backward.run()
        assert max(float64.errors(gradients, float64.gradients(result))) < 1e-5
        said = backward.describe()
        assert said["runs"] == 1
        assert len(said["inputs"]) == len(inputs) + len(constants)
        assert said["peak_bytes"] > 0
        assert {s["kind"] for s in backward.time_steps(1)} >= {"kernel", "matmul", "attention"}
        with pytest.raises(ValueError, match="inputs given; the graph has"):
            backward.bind(inputs[:-1], gradients)


@needs_library
@pytest.mark.parametrize(
    ("graph", "options", "says"),
    [
        ("golf_tinny", {"device": "host"}, "golf_tiny"),
        ("golf_tiny", {"device": "rocm"}, "host, cuda"),
        ("golf_tiny", {"device": "host", "spec": "h300"}, "h300"),
    ],
)
def test_what_ours_cannot_open_is_refused_with_the_reason(graph, options, says):
    with pytest.raises(ours.Refused, match=says):
        ours.Backward(LIBRARY, graph, **options)
