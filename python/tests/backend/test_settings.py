"""Options of the backend: which are refused, and what the others reach."""

import pytest
import torch
from backend_training import FULL, backend_tests, check, network, pair
from retrograd.backend import backend
from retrograd.backend.settings import Settings


@pytest.fixture(autouse=True)
def fresh():
    with backend_tests():
        yield


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
