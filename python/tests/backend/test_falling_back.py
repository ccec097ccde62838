"""What the backend does not compile: Inductor does, with a warning, or it is refused by name."""

import copy

import pytest
import retrograd
import torch
from backend_training import FULL, backend_tests, check, pair
from retrograd.backend import arrived, backend, messages
from torch import nn
from torch.utils.checkpoint import checkpoint


@pytest.fixture(autouse=True)
def fresh():
    with backend_tests():
        yield


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


class _RefusedBehindMirroredEdges(_Refused):
    def forward(self, x):
        return nn.functional.pad(super().forward(x)[None], (1, 2, 2, 1), mode="reflect")[0]


def test_ops_that_stay_whole_for_us_run_through_inductor_as_well():
    model = _RefusedBehindMirroredEdges()
    eager = copy.deepcopy(model)
    ours = torch.compile(model, backend=backend)
    x = torch.randn(4, 3)
    with pytest.warns(messages.BackwardFallsBack, match="runs through Inductor"):
        ours(x).square().sum().backward()
    eager(x).square().sum().backward()
    check(ours, eager)


def test_mirrored_edges_of_images_with_channels_last_run_through_inductor_as_well():
    class Model(nn.Module):
        def __init__(self):
            super().__init__()
            self.conv, self.w = nn.Conv2d(2, 3, 1), nn.Parameter(torch.randn(4, 4))

        def forward(self, x):
            y = nn.functional.pad(self.conv(x), (1, 2, 2, 1), mode="reflect")
            return y.square().sum() * torch.linalg.matrix_exp(self.w).sum()

    model = Model().to(memory_format=torch.channels_last)
    eager = copy.deepcopy(model)
    ours = torch.compile(model, backend=backend, options={"divided": False})
    x = torch.randn(2, 2, 5, 6).to(memory_format=torch.channels_last)
    with pytest.warns(messages.BackwardFallsBack, match="runs through Inductor"):
        ours(x).backward()
    eager(x).backward()
    check(ours, eager)


def test_mirrored_edges_have_their_backward_from_us():
    model = nn.Sequential(nn.Conv2d(2, 3, 1), nn.ReflectionPad2d((2, 1, 0, 3)), nn.Sigmoid())
    eager = copy.deepcopy(model)
    ours = torch.compile(model, backend=backend, options=FULL)
    x = torch.randn(2, 2, 5, 6)
    ours(x).square().sum().backward()
    eager(x).square().sum().backward()
    check(ours, eager)


def test_require_full_makes_it_an_error():
    ours = torch.compile(_Refused(), backend=backend, options=FULL)
    with pytest.raises(Exception, match="has no row"):
        ours(torch.randn(4, 3)).sum().backward()


def test_what_would_fall_back_is_explained_by_its_reason(tmp_path):
    explanation = retrograd.explain(_Refused(), (torch.randn(4, 3),), loss_fn=torch.sum)
    assert "or through Inductor: cannot export aten" in str(explanation)
    assert "cannot export" in explanation._repr_html_()
    with pytest.raises(ValueError, match="no backward of this model is planned"):
        explanation.save(tmp_path / "page.html")


class _Transformed(nn.Module):
    """Its backward holds an op of complex values that no form in real ones is known of."""

    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.randn(8))

    def forward(self, x):
        return torch.fft.fft(x * self.gain).real


def test_a_transform_is_explained_by_its_reason():
    explanation = retrograd.explain(_Transformed(), (torch.randn(4, 8),), loss_fn=torch.sum)
    assert "cannot export aten._fft" in str(explanation)


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


def test_a_branch_by_data_is_refused_with_what_to_write_instead():
    a, b = nn.Linear(4, 4), nn.Linear(4, 4)

    def branch(x):
        return torch.cond(x.sum() > 0, lambda t: a(t).relu(), lambda t: b(t).tanh(), (x,))

    ours = torch.compile(branch, backend=backend, options=FULL)
    with pytest.raises(Exception, match="cannot export cond.*write a branch as torch.where"):
        ours(torch.randn(2, 4)).sum().backward()


@pytest.mark.parametrize("eager_draws", [False, True])
def test_dropout_in_a_checkpointed_block_is_refused_with_what_to_do(eager_draws):
    block = nn.Sequential(nn.Linear(4, 8), nn.GELU(), nn.Dropout(0.5), nn.Linear(8, 4))
    ours = torch.compile(
        lambda x: checkpoint(block, x, use_reentrant=False), backend=backend, options=FULL
    )
    drawn_again = "run_with_rng_state" if eager_draws else "prims.inductor_"
    with torch._inductor.config.patch(fallback_random=eager_draws):
        with pytest.raises(Exception, match=f"cannot export {drawn_again}.*leave dropout outside"):
            ours(torch.randn(2, 4, requires_grad=True)).sum().backward()


def test_a_generator_is_refused_with_what_to_do():
    """Where a GPU draws again, the backward is handed a generator."""
    graph = torch.fx.Graph()
    node = graph.placeholder("bwd_rng_state_0")
    with pytest.raises(retrograd.ExportError, match="bwd_rng_state_0.*leave dropout outside"):
        arrived._check_input(node, torch.Generator(), torch.device("cpu"))
