"""Paths for the tests, and the small models that several of them export once."""

import os
import pathlib
import sys

import pytest

# Some virtual machines announce AMX and let no process use it: oneDNN's bf16 kernels then end on an
# illegal instruction. Read when torch is first imported.
os.environ.setdefault("ONEDNN_MAX_CPU_ISA", "AVX512_CORE_BF16")

ROOT = pathlib.Path(__file__).resolve().parents[2]
BIN = pathlib.Path(os.environ.get("RETROGRAD_BIN_DIR", ROOT / "build/release/bin")).absolute()
os.environ.setdefault("RETROGRAD_LIBRARY", str(BIN / "libretrograd.so"))
# The package, models by name, this file, what several tests use, and the modules that tests are about.
PATHS = ["python", "models", "python/tests", "python/tests/support", "bench", "scripts"]
sys.path[:0] = [str(ROOT / path) for path in PATHS]


@pytest.fixture(scope="module")
def grouped_on_the_host():
    """torch._scaled_grouped_mm on the CPU, where PyTorch has none: operands times their scales, in
    float64."""
    import fp8_samples
    import torch

    library = torch.library.Library("aten", "IMPL")
    library.impl("_scaled_grouped_mm", fp8_samples.scaled_grouped_mm, "CPU")
    yield
    library._destroy()


@pytest.fixture(scope="session")
def exported(tmp_path_factory):
    """exported(name) -> Example, each model exported once a session."""
    import examples

    folder, done = tmp_path_factory.mktemp("exported"), {}

    def export(name):
        if name not in done:
            done[name] = examples.export(name, folder)
        return done[name]

    return export
