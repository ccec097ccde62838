"""Backwards in phases, between which saved tensors go: their gradients, and when what is gone."""

import re
import time
import weakref

import conftest
import pytest
import torch
from backend_training import FULL, node_tests
from direct_nodes import check, deep, total, trained
from retrograd.backend import backend, compiled, programs
from retrograd.backend.node import extension
from torch import nn


@pytest.fixture(autouse=True)
def fresh():
    with node_tests():
        yield


@pytest.fixture
def phases_for_nothing(tmp_path):
    """Options under which any run is cut into phases: the begin of one is predicted to cost nothing,
    and any memory is scarce."""
    cheap = (conftest.ROOT / "fusion/devices/h200.textproto").read_text()
    for name, value in (("launch_stream_us", "0.000001"), ("scarce_memory_bytes", "1")):
        cheap, changed = re.subn(rf"({name} \{{ value: )[0-9.]+", rf"\g<1>{value}", cheap)
        assert changed == 1
    (tmp_path / "cheap.textproto").write_text(cheap)
    return {**FULL, "spec": str(tmp_path / "cheap.textproto")}


def phases_known():
    return [program.phases.count for program in programs._programs.values()]


@pytest.mark.parametrize("by_python", [False, True])
def test_phases_change_no_gradient_and_let_go_of_saved_tensors(phases_for_nothing, by_python):
    options = {**phases_for_nothing, "direct_gradients": not by_python}
    ours, eager = trained(deep(), (64, 32), options=options)
    assert max(phases_known()) > 2
    x = torch.randn(64, 32)
    before = extension.loaded().counts()
    for _ in range(2):
        total(ours(x)).backward()
        total(eager(x)).backward()
    check(ours, eager)
    ran, gradients, let_go = (b - a for a, b in zip(before, extension.loaded().counts(), strict=True))
    assert (ran, gradients) == ((0, 0) if by_python else (2, 16))
    assert (let_go > 0) == (not by_python)


@pytest.mark.parametrize("by_python", [False, True])
def test_tensors_are_gone_in_the_phase_behind_their_last_use(phases_for_nothing, by_python, monkeypatch):
    """Seen from the second phase on: blocks and gradients are made then."""
    alive = []
    enter = compiled.RunMemory.enter

    def watched(memory, phase):
        enter(memory, phase)
        alive.append(sum(t is not None for t in memory._given))

    monkeypatch.setattr(compiled.RunMemory, "enter", watched)
    trained(deep(), (64, 32), options={**phases_for_nothing, "direct_gradients": not by_python})
    assert (alive[-1] < alive[0]) == by_python  # who looks on for a plan keeps them all


@pytest.mark.parametrize("by_python", [False, True])
def test_nothing_of_a_run_stays_behind_it(phases_for_nothing, by_python, monkeypatch):
    made = []
    begin = compiled.RunMemory.__init__

    def watched(memory, *args):
        begin(memory, *args)
        made.append(weakref.ref(memory))

    monkeypatch.setattr(compiled.RunMemory, "__init__", watched)
    trained(deep(), (64, 32), options={**phases_for_nothing, "direct_gradients": not by_python})
    assert made and max(phases_known()) > 2
    assert [memory() for memory in made] == [None] * len(made)


def test_the_hosts_time_is_told_by_parts(phases_for_nothing):
    ours, _ = trained(deep(), (64, 32), options=phases_for_nothing)
    before, runs = extension.loaded().host_ns(), extension.loaded().counts()[0]
    begin = time.perf_counter_ns()
    for _ in range(3):
        total(ours(torch.randn(64, 32))).backward()
    passed = time.perf_counter_ns() - begin
    assert extension.loaded().counts()[0] == runs + 3
    parts = {part: ns - before[part] for part, ns in extension.loaded().host_ns().items()}
    assert set(parts) == {"look_up", "prepare", "memory", "issue", "gradients"}
    assert all(ns > 0 for ns in parts.values()) and sum(parts.values()) < passed


class TwoResults(nn.Module):
    """Returns what its backward reads beside its loss, as a language model with its cache does."""

    def __init__(self):
        super().__init__()
        self.layers = deep()

    def forward(self, x):
        keys = self.layers(x)
        return (keys * keys).sum(), keys


def test_parameters_get_their_gradients_where_a_result_is_saved(phases_for_nothing):
    model = TwoResults()
    ours = torch.compile(model, backend=backend, options=phases_for_nothing)
    extension.start()
    extension.loaded(wait=True)
    counts = []
    for _ in range(3):
        ours(torch.randn(64, 32))[0].backward()
        counts.append(extension.loaded().counts()[1])
    assert counts[2] - counts[1] == len(list(model.parameters()))


def test_a_kept_graph_keeps_its_saved_tensors_in_phases(phases_for_nothing):
    ours, eager = trained(deep(), (64, 32), options=phases_for_nothing)
    x = torch.randn(64, 32)
    for model in (ours, eager):
        loss = total(model(x))
        loss.backward(retain_graph=True)
        loss.backward()
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()
    check(ours, eager)


def test_a_run_of_one_phase_on_request():
    trained(deep(), (64, 32), options={**FULL, "max_phases": 1})
    assert 1 in phases_known()
    with pytest.raises(Exception, match="max_phases: 0 must be at least 1"):
        trained(options={**FULL, "max_phases": 0})
