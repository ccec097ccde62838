"""The built `retrograd`, as a command."""

import subprocess

import conftest
import pytest

FOLDER = conftest.BIN
RETROGRAD = FOLDER / "retrograd"

needs_retrograd = pytest.mark.skipif(not RETROGRAD.exists(), reason=f"{RETROGRAD} is not built")


def output(*arguments):
    """What the command prints; asserts that it succeeds."""
    result = subprocess.run(
        [RETROGRAD, *arguments], check=False, capture_output=True, text=True, timeout=300
    )
    assert result.returncode == 0, result.stdout + result.stderr
    return result.stdout


def run_and_check(graph, bundle, *options):
    """Runs an exported graph on a device, the host unless told otherwise; asserts that each
    gradient is the recorded one, within the tolerance of the graph's dtypes."""
    result = subprocess.run(
        [RETROGRAD, "run", graph, "--inputs", bundle, "--check", *options],
        check=False, capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert result.returncode == 0, result.stdout + result.stderr
