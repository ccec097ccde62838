"""Autograd's node in C++ against eager, on the CPU: what it does itself, and what it leaves to autograd.

`runs` tells how many backwards ran without Python, and how many gradients went into `.grad` there.
"""

import contextlib
import copy
import gc
import io
import os
import pickle
import re
import subprocess
import sys
import threading
import time
import weakref

import conftest
import pytest
import retrograd
import torch
from backend_training import node_tests
from retrograd import native
from retrograd.backend import absent, backend, compiled, programs
from retrograd.backend.node import extension
from retrograd.backend.settings import Settings
from torch import nn

FULL = {"require_full": True}
PARAMETERS = 6  # of network()


@pytest.fixture(autouse=True)
def fresh():
    with node_tests():
        yield


@contextlib.contextmanager
def runs(backwards, gradients):
    """The block runs so many backwards without Python, with so many gradients of parameters."""
    before = extension.loaded().counts()
    yield
    after = extension.loaded().counts()
    assert (after[0] - before[0], after[1] - before[1]) == (backwards, gradients)


def network(width=8):
    return nn.Sequential(nn.Linear(width, 16), nn.GELU(), nn.LayerNorm(16), nn.Linear(16, 4))


def trained(model=None, *shapes, options=FULL):
    """(compiled, eager), of which the first has run a backward: a plan is known."""
    model = model if model is not None else network()
    eager = copy.deepcopy(model)
    ours = torch.compile(model, backend=backend, options=options)
    for shape in shapes or ((6, 8),):
        total(ours(torch.randn(shape))).backward()
    ours.zero_grad()
    return ours, eager


def of(model):
    """The model itself, whether compiled or not."""
    return getattr(model, "_orig_mod", model)


def total(result):
    results = result if isinstance(result, tuple) else (result,)
    return sum(r.square().mean() for r in results)


def check(ours, eager, tolerance=2e-5):
    for (name, mine), theirs in zip(ours.named_parameters(), eager.parameters(), strict=True):
        assert (mine.grad is None) == (theirs.grad is None), name
        if mine.grad is not None:
            meant = [i for i, n in enumerate(mine.shape) if n != 1]  # strides of one element are not
            strides = [[g.stride(i) for i in meant] for g in (mine.grad, theirs.grad)]
            assert strides[0] == strides[1], name
            torch.testing.assert_close(mine.grad, theirs.grad, rtol=tolerance, atol=tolerance)


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


def gradients_of(ours, eager, *shape):
    """Those of one backward of ours; eager's lie in its parameters."""
    x = torch.randn(shape or (6, 8))
    for m in (ours, eager):
        total(m(x)).backward()
    return [p.grad for p in ours.parameters()]


def storages(tensors):
    """By address: the storage of each of the tensors."""
    return {t.untyped_storage().data_ptr(): t.untyped_storage() for t in tensors}


def test_small_gradients_are_ordinary_tensors_of_one_allocation():
    ours, eager = trained()
    gradients = gradients_of(ours, eager)
    assert len(storages(gradients)) == 1
    for g in gradients:
        assert g.storage_offset() * g.element_size() % 512 == 0 and g.data_ptr() % 64 == 0
        assert not g._is_view() and g.is_leaf and not g.requires_grad and g._version == 0
    gradients[0].mul_(2).resize_(1)  # one may change without the others
    assert [g._version for g in gradients[1:]] == [0] * (PARAMETERS - 1)
    check(of(ours)[1:], eager[1:])


def test_memory_of_gradients_goes_with_the_last_that_shares_it():
    ours, eager = trained()
    reference = gradients_of(ours, eager)[0].untyped_storage()._weak_ref()
    try:
        kept = of(ours)[3].bias.grad
        ours.zero_grad(set_to_none=True)
        assert not torch.UntypedStorage._expired(reference)
        torch.testing.assert_close(kept, eager[3].bias.grad, rtol=2e-5, atol=2e-5)
        del kept
        assert torch.UntypedStorage._expired(reference)
    finally:
        torch.UntypedStorage._free_weak_ref(reference)


def test_a_large_gradient_lies_alone_and_allocations_that_are_shared_have_a_bound():
    wide = [nn.Linear(512, 6000), nn.Linear(6000, 512), *(nn.Linear(512, 4000) for _ in range(3))]

    class Wide(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.ModuleList(wide)

        def forward(self, x):
            y = self.layers[1](self.layers[0](x))
            return sum(layer(y).square().mean() for layer in self.layers[2:])

    ours, eager = trained(Wide(), (2, 512))
    gradients = gradients_of(ours, eager, 2, 512)
    check(ours, eager)
    mib = 1 << 20
    for g in gradients:
        lie_there = [t for t in gradients if storages([t]).keys() == storages([g]).keys()]
        bytes_there = g.untyped_storage().nbytes()
        if g.nbytes >= 10 * mib:
            assert len(lie_there) == 1 and bytes_there == g.nbytes
        else:
            assert bytes_there <= 20 * mib
    small = [g for g in gradients if g.nbytes < 10 * mib]
    assert len(small) < len(gradients) and 1 < len(storages(small)) < len(small)


def test_a_gradient_with_a_hook_lies_alone():
    ours, eager = trained()
    for m in (ours, eager):
        of(m)[0].weight.register_post_accumulate_grad_hook(lambda p: None)
    first, *others = gradients_of(ours, eager)
    assert first.untyped_storage().nbytes() == first.nbytes
    assert len(storages(others)) == 1 and not storages([first]).keys() & storages(others).keys()
    check(ours, eager)


def test_gradients_that_share_memory_are_saved_and_copied():
    ours, eager = trained()
    gradients = gradients_of(ours, eager)

    def saved(value):
        file = io.BytesIO()
        torch.save(value, file)
        return file

    alone, together = saved(gradients[-1]), saved(gradients)
    # The storage goes along, once however many tensors of it are saved; a clone has its own.
    shared = gradients[-1].untyped_storage().nbytes()
    assert alone.tell() > shared and together.tell() < 2 * shared + 4096
    assert saved(gradients[-1].clone()).tell() < shared
    for file in (alone, together):
        file.seek(0)
    copies = [*torch.load(together), torch.load(alone), copy.deepcopy(gradients[-1])]
    copies.append(pickle.loads(pickle.dumps(gradients[-1])))
    for mine, theirs in zip(copies, [*gradients, *3 * gradients[-1:]], strict=True):
        assert torch.equal(mine, theirs)
        mine.zero_()
    check(ours, eager)


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


@pytest.mark.parametrize("late", [False, True])
@pytest.mark.parametrize("kind", ["tensor", "accumulated", "node"])
def test_a_parameter_with_a_hook_takes_autograds_way_alone(kind, late):
    ours, eager = trained()
    called = []
    x = torch.randn(6, 8)

    def hook(m):
        weight = of(m)[0].weight
        if kind == "tensor":
            weight.register_hook(lambda g: called.append(1) or 2 * g)
        elif kind == "accumulated":
            weight.register_post_accumulate_grad_hook(lambda p: called.append(1))
        else:
            kept.append(torch.autograd.graph.get_gradient_edge(weight).node)
            kept[-1].register_prehook(lambda grads: called.append(1))

    kept = []
    for m in (ours, eager):
        if not late:
            hook(m)
        loss = m(x).square().mean()
        if late:
            hook(m)
        with runs(1, PARAMETERS - 1) if m is ours else contextlib.nullcontext():
            loss.backward()
    assert len(called) == 2
    check(ours, eager)


def test_a_parameter_with_another_path_takes_autograds_way():
    ours, eager = trained()
    x = torch.randn(6, 8)
    for m in (ours, eager):
        loss = m(x).square().mean() + (of(m)[0].weight ** 2).sum() + of(m)[3].bias.sum()
        with runs(1, PARAMETERS - 2) if m is ours else contextlib.nullcontext():
            loss.backward()
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


def test_tangents_that_are_missing_expanded_or_strided():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = network(), nn.Linear(4, 4)

        def forward(self, x):
            y = self.a(x)
            return y.square().mean(), self.b(y)

    ours, eager = trained(Two())
    x = torch.randn(6, 8)
    uses = [
        lambda loss, y: loss,
        lambda loss, y: y.sum(),
        lambda loss, y: loss + y.sum(),
        lambda loss, y: loss + (y.t().contiguous().t() * y.detach().t().contiguous().t()).sum(),
    ]
    for use in uses:
        use(*ours(x)).backward()  # learned for these tangents
        for m in (ours, eager):
            m.zero_grad()
        with runs(1, PARAMETERS + 2):
            use(*ours(x)).backward()
        use(*eager(x)).backward()
        for mine, theirs in zip(ours.parameters(), eager.parameters(), strict=True):
            expected = torch.zeros_like(theirs) if theirs.grad is None else theirs.grad
            torch.testing.assert_close(mine.grad, expected, rtol=2e-5, atol=2e-5)


class Logits(nn.Module):
    """As language models return them: the loss, and logits that a trainer does not use."""

    def __init__(self):
        super().__init__()
        self.a, self.b = nn.Linear(8, 8), nn.Linear(8, 64)

    def forward(self, x):
        logits = self.b(self.a(x))
        return logits.logsumexp(1).mean(), logits


@pytest.mark.parametrize("pays", [True, False])
def test_a_tangent_that_nobody_computes_may_have_a_program_without_it(monkeypatch, pays):
    asked = []
    monkeypatch.setattr(absent, "pays", lambda compiled, inputs: asked.append(inputs) or pays)
    model = Logits()
    eager = copy.deepcopy(model)
    ours = torch.compile(model, backend=backend, options=FULL)
    uses = [lambda loss, y: loss, lambda loss, y: loss + y.sum(), lambda loss, y: y.sum()]
    for use in uses:  # learned
        use(*ours(torch.randn(6, 8))).backward()
    ours.zero_grad()
    with runs(6, 24):
        for use in 2 * uses:
            x = torch.randn(6, 8)
            for m in (ours, eager):
                use(*m(x)).backward()
    assert len(asked) == 2 and all(len(inputs) == 1 for inputs in asked)
    check(ours, eager)


def test_a_program_without_a_tangent_pays_where_it_is_large():
    class Recipe:
        settings = Settings()

    class Compiled:
        recipe, what = Recipe, "a test"

    shape = 1 << 16, 256
    for other, expected in ((shape, True), ((256,), False)):
        g = native.Builder("absent")
        dy = g.input("dy", "f32", shape, kind="tangent")
        dz = g.input("dz", "f32", other, kind="tangent")
        g.output(g.add("exp", g.add("add", dy, dz)), "dx")
        Recipe.graph = g.finish().serialize()
        assert absent.pays(Compiled, [1]) == expected
        assert len(native.Graph.deserialize(absent.with_zeros(Recipe.graph, [1])).inputs) == 1


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


def test_hooks_on_saved_tensors_are_called():
    ours, eager = trained()
    x = torch.randn(6, 8)
    packed, unpacked = [], []

    def unpack(tensor):
        unpacked.append(1)
        return tensor.clone()

    with torch.autograd.graph.saved_tensors_hooks(lambda t: packed.append(1) or t, unpack):
        loss = ours(x).square().mean()
    with runs(1, PARAMETERS - 2):  # what is packed of a parameter holds its node
        loss.backward()
    eager(x).square().mean().backward()
    assert packed and len(packed) == len(unpacked)
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


def test_hooks_on_results_and_their_kept_gradients():
    ours, eager = trained()
    x = torch.randn(6, 8)
    kept = []
    for m in (ours, eager):
        y = m(x)
        y.retain_grad()
        y.register_hook(lambda g: 3 * g)
        y.square().mean().backward()
        kept.append(y.grad)
    torch.testing.assert_close(*kept)
    check(ours, eager)


def test_anomaly_mode_and_dispatch_modes_keep_pythons_way():
    ours, eager = trained()
    x = torch.randn(6, 8)
    with runs(0, 0), torch.autograd.set_detect_anomaly(True):
        ours(x).square().mean().backward()
    from torch.utils._python_dispatch import TorchDispatchMode

    class Counts(TorchDispatchMode):
        def __torch_dispatch__(self, function, types, args=(), kwargs=None):
            return function(*args, **(kwargs or {}))

    loss = ours(x).square().mean()
    with runs(0, 0), Counts():
        loss.backward()
    for _ in range(2):
        eager(x).square().mean().backward()
    check(ours, eager)


def test_a_profile_sees_the_runs():
    ours, _ = trained()
    found = retrograd.profile(lambda: ours(torch.randn(6, 8)).square().mean().backward())
    assert len(found.backwards) == 1
    with runs(1, PARAMETERS):
        ours(torch.randn(6, 8)).square().mean().backward()


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


def deep():
    return nn.Sequential(*(layer for _ in range(4) for layer in (nn.Linear(32, 32), nn.GELU())))


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


def test_when_the_last_run_was_is_told():
    ours, _ = trained()
    loss = ours(torch.randn(6, 8)).square().mean()
    begin = time.monotonic_ns()
    loss.backward()
    end = time.monotonic_ns()
    ran, done = extension.loaded().last_run_ns()
    assert begin < ran < done < end


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
