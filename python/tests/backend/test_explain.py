"""A model is explained before it trains, and a step of it is profiled."""

import pytest
import retrograd
import torch
from backend_training import backend_tests, check, network, pair


@pytest.fixture(autouse=True)
def fresh():
    with backend_tests():
        yield


def test_a_model_is_explained_before_one_switches():
    explanation = retrograd.explain(
        network(), (torch.randn(6, 8),), loss_fn=lambda y: y.square().mean(), spec="h100"
    )
    (plan,) = explanation.backwards
    assert explanation.predicted_us > 0 and plan.num_kernels > 0
    assert "kernels and library calls" in str(explanation)
    assert explanation._repr_html_().startswith("<iframe")


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
