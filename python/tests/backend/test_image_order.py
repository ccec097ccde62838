"""Where the channels of a forward's images lie: which graphs want them last, what Inductor is told,
and on a GPU what the backward then reads."""

import contextlib
import copy

import pytest
import torch
from backend_training import FULL, backend_tests, interpreted_forwards
from retrograd.backend import backend, entry, image_order
from retrograd.backend.compiled import CompiledBackward
from torch import nn
from torch._subclasses.fake_tensor import FakeTensorMode
from torch.fx.experimental.proxy_tensor import make_fx
from torch.nn import functional as F


@pytest.fixture(autouse=True)
def fresh(request):
    compiles = "inductor" in request.keywords
    with backend_tests(forwards=contextlib.nullcontext if compiles else interpreted_forwards):
        yield


def _graph(*shapes, dtype=torch.bfloat16, device="cuda"):
    """Of a convolution with filters of 3 for each shape of an image."""

    def layers(*images):
        return [
            torch.convolution(
                image, image.new_empty(8, image.shape[1], *[3] * (image.dim() - 2)), None,
                *([n] * (image.dim() - 2) for n in (1, 1, 1)), False, [0] * (image.dim() - 2), 1,
            )
            for image in images
        ]  # fmt: skip

    with FakeTensorMode():
        images = [torch.empty(shape, dtype=dtype, device=device) for shape in shapes]
        return make_fx(layers)(*images).graph


IMAGE, CLIP, SOUND = (2, 16, 8, 8), (2, 16, 4, 8, 8), (2, 16, 32)


@pytest.mark.parametrize(
    ("shapes", "given", "capability", "pays"),
    [
        ([IMAGE], {}, (9, 0), True),
        ([IMAGE], {"dtype": torch.float16}, (10, 0), True),
        ([IMAGE, CLIP], {}, (9, 0), True),  # the images of two dims are
        ([IMAGE], {}, (8, 0), False),
        ([IMAGE], {"dtype": torch.float32}, (9, 0), False),
        ([IMAGE], {"device": "cpu"}, (9, 0), False),
        ([CLIP], {}, (9, 0), False),
        ([SOUND], {}, (9, 0), False),
        ([], {}, (9, 0), False),
    ],
)
def test_16_bit_images_of_two_dims_on_hopper_want_their_channels_last(
    monkeypatch, shapes, given, capability, pays
):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: capability)
    assert image_order.channels_last_pays(_graph(*shapes, **given)) == pays


def test_few_convolutions_among_many_ops_stay_as_inductor_has_them(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 0))
    graph = _graph(IMAGE)
    assert image_order.channels_last_pays(graph)
    with graph.inserting_before():
        for number in range(300):
            graph.placeholder(f"other_{number}")
    assert not image_order.channels_last_pays(graph)


def test_an_amd_gpu_is_no_hopper(monkeypatch):
    monkeypatch.setattr(torch.cuda, "get_device_capability", lambda device: (9, 4))
    monkeypatch.setattr(torch.version, "hip", "6.2")
    assert not image_order.channels_last_pays(_graph(IMAGE))


class _Grouped(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Conv2d(16, 32, 3, padding=1), nn.Conv2d(32, 32, 3, groups=4)

    def forward(self, images):
        return F.relu(self.second(F.relu(self.first(images)))).float().square().mean()


@pytest.mark.parametrize(
    ("given", "wanted"),
    [
        ({}, True),
        ({"channels_last_forward": False}, False),
        ({"force_layout_optimization": False}, False),  # Inductor's own option
    ],
)
def test_inductor_is_told_for_forwards_of_training(monkeypatch, given, wanted):
    told = []
    compiled = entry.compile_fx_inner

    def compile_fx_inner(*args, **how):
        forced = torch._inductor.config.force_layout_optimization
        told.append((bool(how.get("is_backward")), bool(how.get("is_inference")), forced))
        return compiled(*args, **how)

    monkeypatch.setattr(entry, "compile_fx_inner", compile_fx_inner)
    monkeypatch.setattr(image_order, "channels_last_pays", lambda graph: True)
    network = torch.compile(_Grouped(), backend=backend, options={**FULL, **given})
    network(torch.randn(2, 16, 8, 8)).backward()
    with torch.no_grad():
        network(torch.randn(2, 16, 8, 8))
    assert told == [(False, False, wanted), (False, True, False)]


@pytest.mark.inductor
@pytest.mark.parametrize("wanted", [True, False])
def test_a_backward_reads_images_as_the_forward_saved_them(monkeypatch, wanted):
    device = "cuda" if torch.cuda.is_available() else "cpu"
    torch.manual_seed(3)
    eager = _Grouped().to(device, torch.bfloat16)
    ours = copy.deepcopy(eager)
    read, call = [], CompiledBackward.__call__

    def noted(self, inputs):
        read.extend(inputs)
        return call(self, inputs)

    monkeypatch.setattr(CompiledBackward, "__call__", noted)
    monkeypatch.setattr(image_order, "channels_last_pays", lambda graph: True)
    images = torch.randn(2, 16, 8, 8, device=device, dtype=torch.bfloat16)
    options = {**FULL, "channels_last_forward": wanted}
    # With oneDNN Inductor orders a CPU's images by itself.
    with torch.backends.mkldnn.flags(enabled=False):
        torch.compile(ours, backend=backend, options=options)(images).backward()
    eager(images).backward()
    for got, want in zip(ours.parameters(), eager.parameters(), strict=True):
        torch.testing.assert_close(got.grad, want.grad, rtol=5e-2, atol=1e-3)
    saved = [t for t in read if isinstance(t, torch.Tensor) and t.shape[:2] == (2, 32)]
    last = [t.is_contiguous(memory_format=torch.channels_last) for t in saved]
    assert saved and set(last) == {wanted}
