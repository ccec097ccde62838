"""Autograd's node in C++ against eager, on the CPU: what it does itself, what it leaves to autograd.

`runs` tells how many backwards ran without Python, and how many gradients went into `.grad` there.
"""

import contextlib
import gc
import os
import subprocess
import sys
import threading
import time
import warnings
import weakref

import conftest
import pytest
import torch
from backend_training import FULL, node_tests
from direct_nodes import PARAMETERS, check, network, of, runs, total, trained
from retrograd import native
from retrograd.backend import backend, messages, programs
from retrograd.backend.node import extension
from torch import nn


@pytest.fixture(autouse=True)
def fresh():
    with node_tests():
        yield


def test_steps_are_eagers():
    ours, eager = trained()
    optimizers = [torch.optim.AdamW(m.parameters(), lr=0.01) for m in (ours, eager)]
    for set_to_none in (True, False, True):
        x = torch.randn(6, 8)
        for m, optimizer in zip((ours, eager), optimizers, strict=True):
            optimizer.zero_grad(set_to_none=set_to_none)
            with runs(1, PARAMETERS) if m is ours else contextlib.nullcontext():
                m(x).square().mean().backward()
            torch.nn.utils.clip_grad_norm_(m.parameters(), 0.1)
        check(ours, eager)
        for optimizer in optimizers:
            optimizer.step()


def test_gradients_accumulate_in_place_and_keep_their_identity():
    ours, eager = trained()
    xs = torch.randn(3, 6, 8)
    for m in (ours, eager):
        m(xs[0]).square().mean().backward()
    before = [(p.grad, p.grad._version) for p in ours.parameters()]
    with runs(2, 2 * PARAMETERS):
        for x in xs[1:]:
            ours(x).square().mean().backward()
    for x in xs[1:]:
        eager(x).square().mean().backward()
    for p, (gradient, version) in zip(ours.parameters(), before, strict=True):
        assert p.grad is gradient and gradient._version == version + 2
    check(ours, eager)


def test_a_graph_that_is_kept_and_gradients_of_inputs():
    ours, eager = trained()
    ours(torch.randn(6, 8).requires_grad_()).square().mean().backward()  # another graph
    ours.zero_grad()
    found = []
    base = torch.randn(6, 8)
    for m in (ours, eager):
        x = base.clone().requires_grad_()
        loss = m(x * 2).square().mean()
        # Autograd's nodes accumulate the first: the graph must stay whole.
        with runs(2, PARAMETERS) if m is ours else contextlib.nullcontext():
            loss.backward(retain_graph=True)
            loss.backward()
        with pytest.raises(RuntimeError, match="second time"):
            loss.backward()
        found.append(x.grad)
    torch.testing.assert_close(*found)
    check(ours, eager)


def test_gradients_that_are_asked_for_by_name_come_from_autograd():
    ours, eager = trained()
    x = torch.randn(6, 8)
    found = []
    for m in (ours, eager):
        with runs(1, 0) if m is ours else contextlib.nullcontext():
            found.append(torch.autograd.grad(m(x).square().mean(), list(m.parameters())))
        m(x).square().mean().backward(inputs=[of(m)[0].weight])
    for mine, theirs in zip(*found, strict=True):
        torch.testing.assert_close(mine, theirs, rtol=2e-5, atol=2e-5)
    assert [p.grad is not None for p in ours.parameters()] == [True] + 5 * [False]
    check(ours, eager)


def test_the_compiled_function_may_be_called_twice_in_a_graph():
    ours, eager = trained()
    xs = torch.randn(2, 6, 8)
    for m in (ours, eager):
        (m(xs[0]).square().mean() + m(xs[1]).square().mean()).backward()
    check(ours, eager)


def test_losses_that_stay_alive_change_nothing():
    ours, eager = trained()
    losses = []
    for _ in range(3):
        x = torch.randn(6, 8)
        with runs(1, PARAMETERS):
            losses.append(ours(x).square().mean())
            losses[-1].backward()
        eager(x).square().mean().backward()
    check(ours, eager)


def test_several_graphs_and_tied_weights():
    class Broken(nn.Module):
        def __init__(self):
            super().__init__()
            self.a = network(8)
            self.w = nn.Parameter(torch.randn(4, 4))

        def forward(self, x):
            x = self.a(x) @ self.w
            torch._dynamo.graph_break()
            return x @ self.w

    ours, eager = trained(Broken())
    x = torch.randn(6, 8)
    with runs(2, PARAMETERS):
        ours(x).square().mean().backward()
    eager(x).square().mean().backward()
    check(ours, eager)


def test_parameters_of_other_strides_and_dtypes():
    class Mixed(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv = nn.Conv2d(3, 4, 3).to(memory_format=torch.channels_last)
            self.point = nn.Conv2d(4, 4, 1).to(memory_format=torch.channels_last)
            self.factor = nn.Parameter(torch.randn(4, dtype=torch.bfloat16))

        def forward(self, x):
            return (self.point(self.conv(x)).mean((2, 3)) * self.factor.float()).square()

    ours, eager = trained(Mixed(), (2, 3, 8, 8))
    x = torch.randn(2, 3, 8, 8)
    with runs(1, 5):
        ours(x).sum().backward()
    eager(x).sum().backward()
    check(ours, eager, 1e-2)


def test_checkpointing_a_scaler_and_frozen_parameters():
    from torch.utils.checkpoint import checkpoint

    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.inner = nn.Linear(8, 8), network()
            self.first.bias.requires_grad_(False)

        def forward(self, x):
            return checkpoint(self.inner, self.first(x), use_reentrant=False)

    ours, eager = trained(Checkpointed())
    x = torch.randn(6, 8)
    with runs(1, PARAMETERS + 1):
        torch.amp.GradScaler("cpu", init_scale=4).scale(ours(x).square().mean()).backward()
    torch.amp.GradScaler("cpu", init_scale=4).scale(eager(x).square().mean()).backward()
    check(ours, eager)


def test_a_saved_tensor_that_was_written_is_pytorchs_error():
    ours, _ = trained()
    loss = ours(torch.randn(6, 8)).square().mean()
    with torch.no_grad():
        of(ours)[3].weight.add_(1)
    with pytest.raises(RuntimeError, match="modified by an inplace operation"):
        loss.backward()


def test_double_backward_is_refused():
    ours, _ = trained()
    x = torch.randn(6, 8, requires_grad=True)
    with runs(0, 0):
        (gradient,) = torch.autograd.grad(ours(x).square().mean(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        gradient.sum().backward()


def test_threads_that_share_parameters():
    ours, eager = trained()
    xs = torch.randn(8, 6, 8)
    for m in (ours, eager):
        m(xs[0]).square().mean().backward()

    def work(mine):
        for x in mine:
            ours(x).square().mean().backward()

    threads = [threading.Thread(target=work, args=(xs[i::2],)) for i in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    for x in xs:
        eager(x).square().mean().backward()
    check(ours, eager)


def test_what_the_forward_saved_goes_with_the_backward():
    ours, _ = trained()
    loss = ours(torch.randn(6, 8)).square().mean()
    node = loss.grad_fn
    while "Retrograd" not in type(node).__name__ + node.name():
        node = node.next_functions[0][0]
    saved = [weakref.ref(t) for t in gc.get_objects() if type(t) is torch.Tensor and t.shape == (6, 16)]
    loss.backward()
    gc.collect()
    assert all(reference() is None for reference in saved)


def test_each_set_of_dynamic_sizes_has_a_plan():
    ours, eager = trained(network(), (6, 8), (7, 8), (9, 8))
    lengths = (6, 7, 9)
    for n in lengths:  # under the graph of dynamic sizes
        ours(torch.randn(n, 8)).square().mean().backward()
    ours.zero_grad()
    with runs(len(lengths), len(lengths) * PARAMETERS):
        for n in lengths:
            x = torch.randn(n, 8)
            ours(x).square().mean().backward()
            eager(x).square().mean().backward()
    check(ours, eager)


def test_integers_that_no_shape_shows_have_plans_of_their_own():
    def scaled(x, w, n):
        return ((x @ w) * n).sin().square().mean()

    ours = torch.compile(scaled, backend=backend, options=FULL, dynamic=True)
    x, w = torch.randn(6, 8), torch.randn(8, 8, requires_grad=True)

    def gradient(function, n):
        w.grad = None
        function(x, w, n).backward()
        return w.grad.clone()

    numbers = (3, 4, 5, 7)
    for n in numbers:
        gradient(ours, n)
    with runs(2 * len(numbers), 2 * len(numbers)):
        for n in (*numbers, *reversed(numbers)):
            torch.testing.assert_close(gradient(ours, n), gradient(scaled, n))


def test_plans_that_were_not_used_for_longest_give_way():
    options, before = {**FULL, "max_plans": 3}, set(programs.alive())
    ours, eager = trained(network(), (6, 8), options=options)

    def step(n):
        x = torch.randn(n, 8)
        for m in (ours, eager):
            m.zero_grad()
            total(m(x)).backward()
        check(ours, eager)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", messages.BackwardFallsBack)
        for n in (6, 7, 8, 9):  # of which the second makes the graph a dynamic one
            step(n)
        step(7)
        with runs(3, 3 * PARAMETERS):
            for n in (8, 9, 7):
                step(n)
        with runs(0, 0):
            step(10)
        with runs(2, 2 * PARAMETERS):
            step(9), step(7)
        with runs(0, 0):
            step(8)
    gc.collect()
    # Of the static graph, of the node's plans, and those that the compiled backward keeps.
    assert len(set(programs.alive()) - before) <= 1 + 3 + 3


def test_plans_give_way_where_their_programs_hold_too_much(monkeypatch):
    monkeypatch.setattr(
        native.Executable, "memory", property(lambda executable: (200 << 10, 100 << 10))
    )
    ours, eager = trained(network(), (6, 8), options={**FULL, "max_plan_mib": 1})

    def step(n):
        x = torch.randn(n, 8)
        for m in (ours, eager):
            m.zero_grad()
            total(m(x)).backward()
        check(ours, eager)

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", messages.BackwardFallsBack)
        for n in (6, 7, 8, 9, 10):  # of which the second makes the graph a dynamic one
            step(n)
        with runs(3, 3 * PARAMETERS):
            for n in (8, 9, 10):
                step(n)
        with runs(0, 0):
            step(7)


def test_the_option_leaves_it_out():
    ours, eager = trained(options={**FULL, "direct_gradients": False})
    x = torch.randn(6, 8)
    with runs(0, 0):
        ours(x).square().mean().backward()
    eager(x).square().mean().backward()
    check(ours, eager)


TRAINS = """
import sys, torch
from retrograd import native
from retrograd.backend import absent, backend, compiled, programs
from retrograd.backend.node import extension
from retrograd.backend.settings import Settings
model = torch.compile(torch.nn.Linear(4, 4), backend=backend)
for _ in range(2):
    model(torch.randn(2, 4)).sum().backward()
    extension.loaded(wait=True)
assert model.weight.grad is not None and extension.loaded() is None
"""


@pytest.mark.parametrize("compiler", ["/nowhere/c++", "false"])
def test_without_a_compiler_python_runs_backwards(tmp_path, compiler):
    environment = {
        **os.environ, "CXX": compiler, "XDG_CACHE_HOME": str(tmp_path), "RETROGRAD_LOG": "info",
        "PYTHONPATH": str(conftest.ROOT / "python"),
    }  # fmt: skip
    done = subprocess.run(
        [sys.executable, "-c", TRAINS], env=environment, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    assert "backwards run by Python: autograd's node has no compiled module" in done.stderr
    assert not list((tmp_path / "retrograd" / "node").iterdir())


ENDS = """
import pathlib, sys, time
from retrograd.backend.node import extension
extension.start()
while not pathlib.Path(sys.argv[1]).exists():
    time.sleep(0.01)
"""


def test_a_process_that_ends_does_not_wait_for_the_compiler(tmp_path):
    """Compilers are a process that starts others, which hold its output open."""
    begun, compiler = tmp_path / "begun", tmp_path / "c++"
    compiler.write_text(f"#!/bin/sh\ntouch {begun}\nsleep 90\n:\n")
    compiler.chmod(0o755)
    environment = {
        **os.environ, "CXX": str(compiler), "XDG_CACHE_HOME": str(tmp_path),
        "PYTHONPATH": str(conftest.ROOT / "python"),
    }  # fmt: skip
    # Not a pipe: what is left behind would hold it open.
    command = [sys.executable, "-c", ENDS, str(begun)]
    done = subprocess.run(command, env=environment, stderr=subprocess.DEVNULL, timeout=60)
    assert done.returncode == 0
    assert not list((tmp_path / "retrograd" / "node").iterdir())


def test_when_the_last_run_was_is_told():
    ours, _ = trained()
    loss = ours(torch.randn(6, 8)).square().mean()
    begin = time.monotonic_ns()
    loss.backward()
    end = time.monotonic_ns()
    ran, done = extension.loaded().last_run_ns()
    assert begin < ran < done < end
