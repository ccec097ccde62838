"""Beside forwards that Inductor compiles: what they save, its CUDA graphs, its caches. Those marked
`inductor` compile them.
"""

import contextlib
import os
import subprocess
import sys

import conftest
import pytest
import torch
from backend_training import (
    backend_tests,
    check,
    interpreted_forwards,
    pair,
    runs_of_ours,
)
from retrograd.backend import compiled
from torch import nn
from torch.nn import functional as F


@pytest.fixture(autouse=True)
def fresh(request):
    compiles = "inductor" in request.keywords
    with backend_tests(forwards=contextlib.nullcontext if compiles else interpreted_forwards):
        yield


def test_cuda_graphs_of_the_forward_are_told_that_it_is_over(monkeypatch):
    told = []

    class Manager:
        def set_to_running_backward(self):
            told.append("backward")

    monkeypatch.setattr(
        compiled.cudagraph_trees, "get_manager", lambda device, create_if_none_exists: Manager()
    )
    runs = runs_of_ours(monkeypatch)
    ours, _ = pair()
    ours(torch.randn(6, 8)).sum().backward()
    assert told == []  # no graphs on a CPU
    runs[0].forward_graphs.value = 0
    ours(torch.randn(6, 8)).sum().backward()
    assert told == ["backward"]


def test_the_manager_of_the_forwards_graphs_is_looked_up_once_and_not_kept(monkeypatch):
    told, managers = [], [None]

    class Manager:
        def set_to_running_backward(self):
            told.append("backward")

    monkeypatch.setattr(
        compiled.cudagraph_trees, "get_manager", lambda device, create_if_none_exists: managers[0]
    )
    runs = runs_of_ours(monkeypatch)
    ours, _ = pair()
    ours(torch.randn(6, 8)).sum().backward()
    runs[0].forward_graphs.value = 0
    managers[0] = Manager()
    end = runs[0].forward_ender()
    end()
    assert told == ["backward"]
    managers[0] = None
    end()  # the manager is gone
    assert told == ["backward"]


@pytest.mark.inductor
def test_inductors_forward_saves_what_our_backward_reads():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.norm = nn.Conv2d(3, 8, 3), nn.GroupNorm(2, 8)
            self.out = nn.Linear(8, 4)

        def forward(self, x):
            x = F.max_pool2d(F.silu(self.norm(self.conv(x))), 2)
            return self.out(x.mean((2, 3)))

    ours, eager = pair(Mixed().to(memory_format=torch.channels_last))
    x = torch.randn(2, 3, 12, 12).to(memory_format=torch.channels_last)
    for _ in range(2):
        for m in (ours, eager):
            m(x).square().mean().backward()
    check(ours, eager)


PROCESS = """
import sys, torch
from retrograd.backend import backend, entry
made, compile_backward = [], entry.compile_backward
entry.compile_backward = lambda *given: made.append(1) or compile_backward(*given)
torch.manual_seed(0)
w = torch.randn(8, 4, requires_grad=True)
x = torch.randn(6, 8)
def loss(x):
    return (x @ w).tanh().square().sum()
options = None if sys.argv[1] == "inductor" else {"require_full": True}
f = torch.compile(loss, backend="inductor" if options is None else backend, options=options)
value = f(x)
value.backward(retain_graph=True)
value.backward()
y = (x @ w).tanh()
assert torch.allclose(w.grad, 2 * x.t() @ (2 * y * (1 - y * y)), atol=1e-5)
print("compiled by us:", len(made))
"""


@pytest.mark.inductor
def test_a_second_process_finds_the_backward_and_never_inductors(tmp_path):
    """Inductor comes first, whose backward AOTAutograd's cache would hand out under the same key."""
    environment = os.environ | {
        "TORCHINDUCTOR_CACHE_DIR": str(tmp_path),
        "TORCHINDUCTOR_AUTOGRAD_CACHE": "1",
        "PYTHONPATH": str(conftest.ROOT / "python"),
    }

    def run(side):
        done = subprocess.run(
            [sys.executable, "-c", PROCESS, side], env=environment, capture_output=True, text=True
        )
        assert done.returncode == 0, done.stderr[-3000:]
        return done.stdout.strip()

    told = [run(side) for side in ("inductor", "ours", "ours")]
    assert told == [f"compiled by us: {n}" for n in (0, 1, 0)]
