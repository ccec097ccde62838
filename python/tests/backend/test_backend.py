"""torch.compile(backend="retrograd") against eager, on the CPU: what training loops do with it.

Forwards run by the fx interpreter in most tests, which Inductor would take seconds each to compile;
those marked `inductor` compile them.
"""

import contextlib
import copy
import os
import pickle
import subprocess
import sys
import threading
import warnings

import conftest
import pytest
import retrograd
import torch
from backend_training import check, interpreted_forwards, network, runs_of_ours
from retrograd.backend import arrived, backend, compiled, messages
from retrograd.backend.node import extension
from retrograd.backend.settings import Settings
from retrograd.errors import ExportError
from torch import nn
from torch.nn import functional as F


@pytest.fixture(autouse=True)
def fresh(request):
    assert extension.loaded(wait=True) is not None
    torch._dynamo.reset()
    torch.manual_seed(0)
    interpreted = "inductor" not in request.keywords
    context = interpreted_forwards() if interpreted else contextlib.nullcontext()
    with context, warnings.catch_warnings():
        warnings.simplefilter("error", messages.BackwardFallsBack)
        yield
    torch._dynamo.reset()


FULL = {"require_full": True}


def pair(model=None, options=FULL):
    """(compiled, eager): the same model twice."""
    model = model if model is not None else network()
    eager = copy.deepcopy(model)
    return torch.compile(model, backend=backend, options=options), eager


# --- training loops -------------------------------------------------------------------------------


def test_losses_and_gradients_of_a_training_run_are_those_of_eager():
    ours, eager = pair()
    optimizers = [torch.optim.AdamW(m.parameters(), lr=0.01) for m in (ours, eager)]
    for _ in range(5):
        x, y = torch.randn(6, 8), torch.randint(4, (6,))
        losses = []
        for model, optimizer in zip((ours, eager), optimizers, strict=True):
            optimizer.zero_grad()
            losses.append(F.cross_entropy(model(x), y))
            losses[-1].backward()
        check(ours, eager)
        assert losses[0].item() == pytest.approx(losses[1].item(), rel=1e-5)
        for optimizer in optimizers:
            optimizer.step()


def test_gradients_accumulate_over_micro_steps():
    ours, eager = pair()
    for _ in range(3):
        x = torch.randn(6, 8)
        for model in (ours, eager):
            model(x).square().mean().backward()
    check(ours, eager)


def test_two_forwards_then_two_backwards():
    ours, eager = pair()
    xs = torch.randn(2, 6, 8)
    for model in (ours, eager):
        first, second = (model(x).square().mean() for x in xs)
        second.backward()
        first.backward()
    check(ours, eager)


@pytest.mark.parametrize("before", [0, 1])
def test_a_graph_may_be_kept_and_run_again(before):
    """From the first backward on, or first at a later one."""
    ours, eager = pair()
    x = torch.randn(6, 8)
    for model in (ours, eager):
        for _ in range(before):
            model(x).sum().backward()
        loss = model(x).square().mean()
        loss.backward(retain_graph=True)
        loss.backward()
    check(ours, eager)


def test_gradients_of_inputs_and_of_a_subset():
    ours, eager = pair()
    x = torch.randn(6, 8, requires_grad=True)
    mine, theirs = (torch.autograd.grad(m(x).square().mean(), x)[0] for m in (ours, eager))
    torch.testing.assert_close(mine, theirs)


def test_frozen_parameters_have_no_gradient():
    model = network()
    model[0].weight.requires_grad_(False)
    ours, eager = pair(model)
    x = torch.randn(6, 8)
    for m in (ours, eager):
        m(x).sum().backward()
    assert model[0].weight.grad is None
    check(ours, eager)


def test_tied_weights_have_one_gradient():
    class Tied(nn.Module):
        def __init__(self):
            super().__init__()
            self.embedding = nn.Embedding(11, 8)

        def forward(self, ids):
            return F.linear(self.embedding(ids), self.embedding.weight)

    ours, eager = pair(Tied())
    ids = torch.randint(11, (3, 5))
    for m in (ours, eager):
        F.cross_entropy(m(ids).flatten(0, 1), ids.flatten()).backward()
    check(ours, eager)


def test_unused_and_several_outputs():
    class Two(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(8, 4), nn.Linear(8, 4)

        def forward(self, x):
            return self.a(x).tanh(), self.b(x).sigmoid()

    ours, eager = pair(Two())
    x = torch.randn(6, 8)
    for m in (ours, eager):
        m(x)[1].square().sum().backward()  # nothing reads the first
    for parameter in eager.a.parameters():
        parameter.grad = torch.zeros_like(parameter)  # AOTAutograd's answer, with Inductor as well
    check(ours, eager)


def test_tangents_that_are_not_contiguous():
    ours, eager = pair()
    x, dy = torch.randn(6, 8), torch.randn(4, 6).t()
    for m in (ours, eager):
        m(x).backward(dy)
        m(x).backward(torch.ones(()).expand(6, 4))
    check(ours, eager)


def test_inputs_that_are_views_of_one_tensor_and_not_contiguous():
    ours, eager = pair()
    base = torch.randn(8, 13)
    for m in (ours, eager):
        (m(base[:, 1:7].t()) + m(base[:, 2:8].t())).square().mean().backward()
    check(ours, eager)


def test_channels_last_networks():
    model = nn.Sequential(nn.Conv2d(3, 8, 3, bias=False), nn.BatchNorm2d(8), nn.ReLU(), nn.Conv2d(8, 4, 3, 2))
    ours, eager = pair(model.to(memory_format=torch.channels_last))
    x = torch.randn(2, 3, 12, 12).to(memory_format=torch.channels_last)
    for m in (ours, eager):
        m(x).square().mean().backward()
    check(ours, eager, tolerance=2e-4)


def test_graph_breaks_give_a_backward_each(monkeypatch):
    class Broken(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = network(), network(4)

        def forward(self, x):
            x = self.a(x)
            torch._dynamo.graph_break()
            return self.b(x)

    runs = runs_of_ours(monkeypatch)
    ours, eager = pair(Broken())
    x = torch.randn(6, 8)
    for m in (ours, eager):
        m(x).square().mean().backward()
    check(ours, eager)
    assert len(runs) == 2


def test_equal_layers_share_a_program(monkeypatch):
    runs = runs_of_ours(monkeypatch)
    blocks = nn.ModuleList(network() for _ in range(2))
    x = torch.randn(6, 8)
    for block in blocks:
        seen = {**FULL, "direct_gradients": False}  # all runs are Python's
        torch.compile(block, backend=backend, options=seen)(x).sum().backward()
    assert runs[0].program is runs[1].program


def test_no_grad_and_eval():
    ours, eager = pair(nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5)))
    x = torch.randn(6, 8)
    with torch.no_grad():
        ours(x), eager(x)
    ours.eval(), eager.eval()
    torch.testing.assert_close(ours(x), eager(x), rtol=1e-3, atol=1e-3)
    for m in (ours, eager):
        m(x).square().mean().backward()
    check(ours, eager, tolerance=1e-3)


@pytest.mark.parametrize("dtype", [torch.bfloat16, torch.float16])
def test_autocast_and_a_scaler(dtype):
    ours, eager = pair()
    x, y = torch.randn(32, 8), torch.randint(4, (32,))
    for m in (ours, eager):
        scaler = torch.amp.GradScaler("cpu", enabled=dtype == torch.float16)
        optimizer = torch.optim.SGD(m.parameters(), lr=0.1)
        with torch.autocast("cpu", dtype):
            loss = F.cross_entropy(m(x).float(), y)
        scaler.scale(loss).backward()
        scaler.unscale_(optimizer)
    check(ours, eager, tolerance=2e-2)


@pytest.mark.parametrize("reentrant", [False, True])
def test_activation_checkpointing(reentrant):
    from torch.utils.checkpoint import checkpoint

    class Checkpointed(nn.Module):
        def __init__(self):
            super().__init__()
            self.first, self.inner = nn.Linear(8, 8), network()

        def forward(self, x):
            return checkpoint(self.inner, self.first(x), use_reentrant=reentrant)

    ours, eager = pair(Checkpointed())
    x = torch.randn(6, 8)
    for m in (ours, eager):
        m(x).square().mean().backward()
    check(ours, eager)


def test_dropout_as_captured():
    class Dropped(nn.Module):
        def __init__(self):
            super().__init__()
            self.a, self.b = nn.Linear(8, 16), nn.Linear(16, 4)

        def forward(self, x):
            return self.b(F.dropout(self.a(x).relu(), 0.5))

    ours, _ = pair(Dropped())
    x = torch.randn(64, 8)
    y = ours(x)
    y.sum().backward()
    # dW of the last layer is what dropout left of its input, summed: found from the forward.
    dropped = torch.linalg.lstsq(ours.b.weight.detach(), (y - ours.b.bias).detach().t()).solution
    assert dropped.shape == (16, 64)
    zero = (ours.a.weight.grad.abs().sum(1) == 0).sum()
    assert zero < 16 and ours.b.weight.grad.abs().sum() > 0


def test_hooks_are_called_with_the_gradients():
    ours, eager = pair()
    seen = [], []
    x = torch.randn(6, 8)
    for m, told in zip((ours, eager), seen, strict=True):
        parameters = list(m.parameters())
        parameters[0].register_hook(lambda g, told=told: told.append(g.norm()))
        parameters[-1].register_post_accumulate_grad_hook(
            lambda p, told=told: told.append(p.grad.norm())
        )
        m(x).square().mean().backward()
    assert len(seen[0]) == 2
    torch.testing.assert_close(sorted(seen[0]), sorted(seen[1]))


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


def test_threads_run_one_program():
    ours, eager = pair()
    xs = [torch.randn(6, 8, requires_grad=True) for _ in range(4)]
    ours(xs[0]).square().mean().backward()
    expected = [torch.autograd.grad(eager(x).square().mean(), x)[0] for x in xs]
    found = [None] * len(xs)

    def work(i):
        for _ in range(20):
            (found[i],) = torch.autograd.grad(ours(xs[i]).square().mean(), xs[i])

    threads = [threading.Thread(target=work, args=(i,)) for i in range(len(xs))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    torch.testing.assert_close(found, expected)


def test_copies_and_states_of_compiled_models():
    ours, eager = pair()
    x = torch.randn(6, 8)
    ours(x).sum().backward()
    twin = copy.deepcopy(ours)
    twin.load_state_dict(pickle.loads(pickle.dumps(ours.state_dict())))
    twin.zero_grad()
    twin(x).square().mean().backward()
    eager(x).square().mean().backward()
    check(twin, eager)


def test_the_functional_form():
    w = torch.randn(8, 4, requires_grad=True)
    f = torch.compile(lambda x: (x @ w).tanh().sum(), backend=backend, options=FULL)
    x = torch.randn(6, 8)
    f(x).backward()
    (expected,) = torch.autograd.grad((x @ w).tanh().sum(), w)
    torch.testing.assert_close(w.grad, expected)


def test_sizes_0_and_1():
    for rows in (0, 1):
        torch._dynamo.reset()
        ours, eager = pair()
        x = torch.randn(rows, 8)
        for m in (ours, eager):
            m(x).sum().backward()
        check(ours, eager)


def test_data_parallel_training_of_one_process(tmp_path):
    import torch.distributed as distributed
    from torch.nn.parallel import DistributedDataParallel

    distributed.init_process_group("gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1)
    try:
        model = network()
        eager = copy.deepcopy(model)
        ours = torch.compile(DistributedDataParallel(model), backend=backend, options=FULL)
        x = torch.randn(6, 8)
        for m in (ours, eager):
            m(x).square().mean().backward()
        check(model, eager)
    finally:
        distributed.destroy_process_group()


# --- falling back ---------------------------------------------------------------------------------


class _Refused(nn.Module):
    """Its backward holds an op that no row has."""

    def __init__(self):
        super().__init__()
        self.w = nn.Parameter(torch.randn(4, 4))

    def forward(self, x):
        return torch.linalg.matrix_exp(self.w) @ x


def test_what_has_no_row_runs_through_inductor_with_one_warning():
    model = _Refused()
    eager = copy.deepcopy(model)
    ours = torch.compile(model, backend=backend)
    x = torch.randn(4, 3)
    with pytest.warns(messages.BackwardFallsBack, match="runs through Inductor.*has no row") as told:
        ours(x).sum().backward()
    ours(x).sum().backward()  # in silence
    assert len([w for w in told if w.category is messages.BackwardFallsBack]) == 1
    for _ in range(2):
        eager(x).sum().backward()
    check(ours, eager)


def test_require_full_makes_it_an_error():
    ours = torch.compile(_Refused(), backend=backend, options=FULL)
    with pytest.raises(Exception, match="has no row"):
        ours(torch.randn(4, 3)).sum().backward()


# --- explain ----------------------------------------------------------------------------------------


def test_a_model_is_explained_before_one_switches():
    explanation = retrograd.explain(
        network(), (torch.randn(6, 8),), loss_fn=lambda y: y.square().mean(), spec="h100"
    )
    (plan,) = explanation.backwards
    assert explanation.predicted_us > 0 and plan.num_kernels > 0
    assert "kernels and library calls" in str(explanation)
    assert explanation._repr_html_().startswith("<iframe")


def test_what_would_fall_back_is_explained_by_its_reason(tmp_path):
    explanation = retrograd.explain(_Refused(), (torch.randn(4, 3),), loss_fn=torch.sum)
    assert "runs through Inductor: cannot export aten" in str(explanation)
    assert "cannot export" in explanation._repr_html_()
    with pytest.raises(ValueError, match="no backward of this model is planned"):
        explanation.save(tmp_path / "page.html")


def test_a_step_is_profiled_and_its_gradients_are_right():
    ours, eager = pair()
    x = torch.randn(6, 8)

    def step():
        ours(x).square().mean().backward()

    step()
    eager(x).square().mean().backward()
    profile = retrograd.profile(step)
    eager(x).square().mean().backward()
    check(ours, eager)
    ((_, steps),) = profile.backwards
    assert all(s.measured_us > 0 and s.predicted_us > 0 and s.bytes > 0 for s in steps)
    assert profile.measured_us == pytest.approx(sum(s.measured_us for s in steps))
    assert "mul sum" in str(profile) and profile._repr_html_().startswith("<table>")
    with pytest.raises(RuntimeError, match="no backward of the backend ran"):
        retrograd.profile(lambda: eager(x).sum().backward())


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


def test_sharded_training_of_one_process(tmp_path):
    import torch.distributed as distributed
    from torch.distributed.device_mesh import init_device_mesh
    from torch.distributed.fsdp import fully_shard

    distributed.init_process_group(
        "gloo", init_method=f"file://{tmp_path}/group", rank=0, world_size=1
    )
    try:
        model = network()
        eager = copy.deepcopy(model)
        mesh = init_device_mesh("cpu", (1,))
        for layer in (model[0], model[3]):
            layer.compile(backend=backend, options=FULL)
            fully_shard(layer, mesh=mesh)
        fully_shard(model, mesh=mesh)
        x = torch.randn(6, 8)
        for m in (model, eager):
            m(x).square().mean().backward()
        for mine, theirs in zip(model.parameters(), eager.parameters(), strict=True):
            torch.testing.assert_close(mine.grad.full_tensor(), theirs.grad)
    finally:
        distributed.destroy_process_group()


# --- wrong use ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"require_ful": True}, "unknown option 'require_ful'; near it: require_full"),
        ({"require_full": "yes"}, "option require_full: 'yes' must be of type bool"),
        ({"mode": "fast"}, "mode 'fast': must be one of default"),
        ({"streams": -1}, "option streams: -1 must be at least 0"),
        ({"tuned": 3}, "option tuned: 3 must be of type str"),
        ({"tuning_budget_s": -1}, "option tuning_budget_s: -1 must be 0 or more"),
        ({"tuning_budget_s": True}, "option tuning_budget_s: True must be a number"),
        ({"disable": "fusion"}, "option disable: 'fusion' must be a list"),
        ({"conv_bwd_input_backends": ["cublas"]}, "must hold some of cudnn, retrograd, matmul"),
        ({"conv_bwd_weight_backends": ["matmul"]}, "matmul makes 1x1 convolutions alone"),
    ],
)
def test_wrong_options_are_refused(options, words):
    with pytest.raises(Exception, match=words):
        torch.compile(network(), backend=backend, options=options)(torch.randn(6, 8))


def test_a_file_of_choices_and_a_budget_reach_the_device(tmp_path):
    tuned = tmp_path / "tuned.textproto"
    tuned.write_text("version: 1\n")
    ours, eager = pair(options={**FULL, "tuned": str(tuned), "tuning_budget_s": 2})
    x = torch.randn(6, 8)
    for model in (ours, eager):
        model(x).square().mean().backward()
    check(ours, eager)
    tuned = tmp_path / "broken.textproto"
    tuned.write_text("version: 1\nchoice {\n")
    ours, _ = pair(options={**FULL, "tuned": str(tuned)})
    with pytest.raises(Exception, match="broken.textproto:3: "):
        ours(torch.randn(6, 8)).sum().backward()


def test_modes_and_inductors_options_reach_inductor():
    assert Settings.of("max-autotune", None).inductor_patches()["max_autotune"] is True
    settings = Settings.of(None, {"mode": "reduce-overhead", "epilogue_fusion": True, "streams": 2})
    assert settings.inductor_patches()["triton.cudagraphs"] is True
    assert settings.inductor_patches()["epilogue_fusion"] is True
    assert settings.streams == 2
    assert settings.tag() != Settings.of(None, None).tag()


def test_what_is_switched_off_reaches_executables():
    for name in ("early_launches", "keep_sorted_indices"):
        assert name not in Settings.of(None, None).of_executables()
        assert Settings.of(None, {name: False}).of_executables()[name] is False


def test_double_backward_says_that_it_is_not_supported():
    ours, _ = pair()
    x = torch.randn(6, 8, requires_grad=True)
    (gradient,) = torch.autograd.grad(ours(x).square().mean(), x, create_graph=True)
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        gradient.sum().backward()


def test_complex_tensors_fall_back_by_name():
    model = nn.Linear(4, 4, dtype=torch.complex64)
    ours = torch.compile(model, backend=backend, options=FULL)
    with pytest.raises(Exception, match="complex64"):
        ours(torch.randn(2, 4, dtype=torch.complex64)).abs().sum().backward()


# --- with Inductor's forward ------------------------------------------------------------------------


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
