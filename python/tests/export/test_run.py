"""Exported graphs, executed by the built `retrograd`, give PyTorch's gradients."""

import command
import examples
import pytest


@command.needs_retrograd
@pytest.mark.parametrize("name", examples.NAMES)
def test_an_exported_model_runs_and_matches_pytorch(exported, name):
    example = exported(name)
    command.run_and_check(example.path, example.bundle)
