"""The table in README.md of what training with backend="retrograd" takes beside PyTorch's best
mode: a line for each folder of bench/results that bench/training.py filled."""

import json
import pathlib
import statistics

from tables import training_table

RESULTS = pathlib.Path(__file__).resolve().parents[2] / "bench/results"

# What a folder's models are.
FOLDERS = {
    "training_nvidia_h100": "image models, batch 1 to 8",
    "training_transformers_nvidia_h100": "golf, GPT-2, BERT, Llama",
    "training_b64_nvidia_h100": "image models, batch 64",
    "training_held_out_nvidia_h100": "other networks of timm and transformers",
    "training_nvidia_h200": "transformers and image models",
}
FIGURES = {
    "backward_gpu_ms": "GPU time of the backward",
    "backward_ms": "`loss.backward()`",
    "backward_host_us": "host time of it",
    "step_ms": "whole step",
    "captured_step_ms": "as one CUDA graph",
}


def _gpu(machine):
    return "H200" if "H200" in machine["device"] else "H100"


def _cell(rows, key):
    """The mean and, in brackets, the worst of the rows that have the figure on both sides, if half
    of them have it: a few do not speak for all."""
    found = [ratio for row in rows if (ratio := row.ratio(key))]
    if not found or 2 * len(found) < len(rows):
        return "-"
    return f"{statistics.geometric_mean(found):.2f} ({max(found):.2f})"


def _line(name, what):
    files = [json.loads(path.read_text()) for path in sorted((RESULTS / name).glob("*.json"))]
    rows = [training_table.Row(file) for file in files]
    ratios = [_cell(rows, key) for key in FIGURES]
    cells = [what, _gpu(files[0]["machine"]), str(len(rows)), *ratios]
    return f"| {' | '.join(cells)} |"


def table():
    """The table, as Markdown."""
    heads = ["", "GPU", "models", *FIGURES.values()]
    return "\n".join(
        [
            f"| {' | '.join(heads)} |",
            f"|{'---|' * len(heads)}",
            *(_line(name, what) for name, what in FOLDERS.items()),
        ]
    )
