"""What forwards saved, as backwards find it: in other strides, dtypes or on other devices, subclasses
of tensors, tensors that were written. Against eager, on the CPU.
"""

import pytest
import torch
from backend_training import FULL, backend_tests, check, pair, runs_of_ours
from retrograd import dtypes, schema
from retrograd.backend import arrived
from retrograd.errors import ExportError
from torch import nn


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
