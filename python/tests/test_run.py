"""Exported graphs, executed by the built `retrograd`, give PyTorch's gradients."""

import os
import pathlib
import subprocess

import conftest
import examples
import pytest

FOLDER = pathlib.Path(os.environ.get("RETROGRAD_BIN_DIR", conftest.ROOT / "build/release/bin"))
RETROGRAD = FOLDER / "retrograd"


@pytest.mark.skipif(not RETROGRAD.exists(), reason=f"{RETROGRAD} is not built")
@pytest.mark.parametrize("name", examples.NAMES)
def test_an_exported_model_runs_and_matches_pytorch(exported, name):
    example = exported(name)
    result = subprocess.run(
        [RETROGRAD, "run", example.path, "--inputs", example.bundle, "--check"],
        check=False, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
