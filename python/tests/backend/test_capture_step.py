"""Whole training steps in one CUDA graph; without a GPU, steps as they are."""

import copy
import gc

import pytest
import retrograd
import torch
from retrograd.backend import backend, programs
from torch import nn

on_a_gpu = pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a GPU that PyTorch sees")
DEVICE = "cuda" if torch.cuda.is_available() else "cpu"
FULL = {"require_full": True}


class Training:
    """A model with its optimizer and a batch that stays where it is."""

    def __init__(self, model, compiled, **options):
        self.model = copy.deepcopy(model).to(DEVICE)
        self.call = (
            torch.compile(self.model, backend=backend, options=FULL) if compiled else self.model
        )
        self.optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9)
        self.x = torch.zeros(16, 32, device=DEVICE)
        self.options = options

    def step(self):
        self.optimizer.zero_grad(set_to_none=True)
        loss = (self.call(self.x) ** 2).mean()
        loss.backward()
        self.optimizer.step()
        return loss

    def fill(self, seed):
        self.x.copy_(torch.randn(16, 32, generator=torch.Generator().manual_seed(seed)))


def mlp():
    torch.manual_seed(5)
    return nn.Sequential(nn.Linear(32, 64), nn.GELU(), nn.LayerNorm(64), nn.Linear(64, 8))


def test_a_captured_step_trains_as_eager_does():
    model = mlp()
    ours, eager = Training(model, True), Training(model, False)
    for training in (ours, eager):
        training.fill(0)
    step = retrograd.capture_step(ours.step)
    for _ in range(3):
        eager.step()
    for seed in range(1, 6):
        for training in (ours, eager):
            training.fill(seed)
        loss, expected = step(), eager.step()
        torch.testing.assert_close(loss.detach(), expected.detach(), rtol=1e-4, atol=1e-6)
    for mine, theirs in zip(ours.model.parameters(), eager.model.parameters(), strict=True):
        torch.testing.assert_close(mine, theirs, rtol=1e-3, atol=1e-5)


def test_without_a_gpu_each_call_runs_the_step(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    calls = []
    step = retrograd.capture_step(lambda: calls.append(len(calls)), warmup=4)
    assert step.graph is None and len(calls) == 4
    step()
    assert len(calls) == 5


def test_too_little_warm_up_and_what_is_no_step_are_refused():
    with pytest.raises(ValueError, match="warmup is 2: at least 3"):
        retrograd.capture_step(lambda: None, warmup=2)
    with pytest.raises(TypeError, match="not int"):
        retrograd.capture_step(3)


@pytest.mark.parametrize("enabled", [True, False])
def test_garbage_is_collected_before_a_capture_and_not_within(enabled):
    """What a cycle holds, as a graph of another step, is let go by calls that end a capture."""
    from retrograd.backend import capture_step

    (gc.enable if enabled else gc.disable)()
    try:
        with pytest.raises(RuntimeError), capture_step._without_collecting():
            assert not gc.isenabled()
            raise RuntimeError
        assert gc.isenabled() == enabled
    finally:
        gc.enable()


@on_a_gpu
def test_a_step_that_waits_for_the_device_is_refused_with_what_to_do():
    training = Training(mlp(), True)
    with pytest.raises(RuntimeError, match="must not wait for the device"):
        retrograd.capture_step(lambda: training.step().item())


@on_a_gpu
def test_behind_a_capture_that_failed_steps_run_and_another_is_captured():
    training = Training(nn.Sequential(mlp(), nn.Dropout(0.5)), True)
    training.fill(1)
    stream = torch.cuda.current_stream()
    waits = [True]

    def step():
        loss = training.step()
        return loss.item() if waits[0] else loss

    with pytest.raises(RuntimeError, match="must not wait for the device"):
        retrograd.capture_step(step)
    assert torch.cuda.current_stream() == stream
    waits[0] = False
    pools = {segment["segment_pool_id"] for segment in torch.cuda.memory_snapshot()}
    before = step()
    kept = torch.empty(1 << 26, device=DEVICE)
    there = [
        s
        for s in torch.cuda.memory_snapshot()
        if s["address"] <= kept.data_ptr() < s["address"] + s["total_size"]
    ]
    assert [s["segment_pool_id"] for s in there] == [(0, 0)], pools
    captured = retrograd.capture_step(step)
    assert captured.graph is not None
    assert {float(captured()) for _ in range(3)} != {float(before)}


@on_a_gpu
def test_the_backward_of_a_capture_runs_without_python_and_outlives_its_compiler():
    from retrograd.backend.node import extension

    training = Training(mlp(), True)
    training.fill(1)
    before = extension.loaded(wait=True).counts()[0] if extension.loaded() else 0
    step = retrograd.capture_step(training.step, warmup=4)
    assert extension.loaded().counts()[0] - before >= 3  # of four warm-ups and the capture
    assert programs.alive()
    first = float(step())
    torch._dynamo.reset()
    gc.collect()
    later = [float(step()) for _ in range(20)]
    assert later[-1] < first
