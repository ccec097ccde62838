"""Depthwise convolutions' gradients by the kernels that Retrograd generates, run on the host,
against PyTorch's in float64."""

import command
import pytest
import retrograd
import torch
from retrograd import native
from torch import nn

ONLY_OURS = (
    "--conv-bwd-input-backends", "retrograd", "--conv-bwd-weight-backends", "retrograd",
)  # fmt: skip
LAYERS = {1: nn.Conv1d, 2: nn.Conv2d, 3: nn.Conv3d}
LAST = {2: torch.channels_last, 3: torch.channels_last_3d}


def _case(kernel, extents, stride=1, padding=0, dilation=1, channels=6, filters=1, batch=2):
    return locals()


CASES = [
    _case((3, 3), (7, 6), padding=1),
    _case((3, 3), (7, 6), stride=2, padding=1),
    _case((5, 5), (9, 8), stride=(2, 3), padding=2, channels=5),
    _case((7, 7), (7, 7), padding=3, channels=8),
    _case((7, 7), (12, 30), padding=3, channels=2),
    _case((1, 3), (5, 7), stride=(1, 2), padding=(0, 1)),
    _case((3, 1), (5, 7), dilation=(2, 1)),
    _case((3, 3), (12, 11), stride=2, padding=2, dilation=2),
    _case((3, 3), (14, 13), stride=(2, 3), padding=3, dilation=(4, 3), channels=3),
    _case((2, 2), (9, 9), stride=3),  # pixels between windows
    _case((3, 3), (4, 5), padding=4),  # windows beyond the image
    _case((3, 3), (1, 1), padding=1),
    _case((3, 3), (6, 7), padding=1, channels=4, filters=3),
    _case((1, 1), (4, 4), channels=7),
    _case((3, 3), (8, 8), channels=1, batch=3),
    _case((2, 3, 2), (4, 5, 3), stride=(2, 1, 2), padding=(1, 1, 0)),
    _case((3, 3, 3), (4, 4, 4), padding=1, channels=4),
    _case((4,), (9,), padding=3, channels=16),
]


def _makers(path):
    """Who makes the calls of a graph on the host."""
    backends = {f"conv_bwd_{of}_backends": ["retrograd"] for of in ("input", "weight")}
    with native.Device("host") as device:
        program = native.Executable(native.Graph.load(path), device, settings=backends)
        return [call["by"].split(",")[0] for call in program.describe()["calls"]]


@command.needs_retrograd
@pytest.mark.parametrize("case", CASES, ids=lambda c: ",".join(f"{k}={v}" for k, v in c.items()))
def test_gradients_are_pytorchs(tmp_path, case):
    torch.manual_seed(1)
    dims = len(case["kernel"])
    layer = LAYERS[dims](
        case["channels"], case["channels"] * case["filters"], case["kernel"], case["stride"],
        case["padding"], case["dilation"], groups=case["channels"], bias=False,
    ).double()  # fmt: skip
    x = torch.randn(case["batch"], case["channels"], *case["extents"], dtype=torch.float64)
    if dims in LAST:
        x = x.to(memory_format=LAST[dims])
    (path,) = retrograd.export_backward(
        layer, (x.requires_grad_(),), {}, tmp_path / "conv",
        loss_fn=lambda y: (y * y.detach().sin()).sum(), bundle=True,
    )  # fmt: skip
    if dims == 2:  # with its channels last in all tensors
        assert set(_makers(path)) == {"kernels of ours"}
    command.run_and_check(path, tmp_path / "conv.safetensors", *ONLY_OURS)
    command.run_and_check(path, tmp_path / "conv.safetensors", *ONLY_OURS, "--sanitize")
