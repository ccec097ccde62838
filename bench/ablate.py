#!/usr/bin/env python3
"""What each part of the planner is worth on this GPU: backwards with it and without.

  bench/ablate.py                  make bench-ablate
  bench/ablate.py golf_gpt_34m_b32 bert --out FILE

Each model's backward is planned and compiled as ever, then with one part switched off after the
other, then with all of them off; all runs of a model are in one process, on the same random inputs.
The forward is in none. docs/benchmarks.md says what is switched off and shows the table that
bench/ablation_table.py makes of the file.

Needs torch, a GPU, and the library that `make build` leaves in build/release/bin; no network.
"""

import argparse
import json
import pathlib
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "bench"))

from run import commit, environment, missing, slug_of_device, write_row  # noqa: E402

# What is switched off: options of rg_backward_open.
PARTS = {
    "alignment and divisibility": {"disable": ["vectorization"]},
    "split reductions": {"disable": ["split_reductions"]},
    "persistent reductions": {"disable": ["persistent_reductions"]},
    "first-writer stores": {"disable": ["first_writer"]},
    # As if a thread had any number of registers for nothing.
    "registers in the price": {"set": ["max_registers=100000", "registers_per_sm=1000000000"]},
    # With the part above, as a compiler fuses that has no prices at all.
    "prices of fusions": {"disable": ["fusion_prices"]},
}
ALL = "all of them"
MODELS = ["golf_gpt_34m_b32", "golf_plain_b48", "bert", "gpt2", "llama", "vit"]
REPEAT = 10
MINUTES = 10  # for one model


def variants():
    """{name: options}, what is whole first."""
    together = {}
    for options in PARTS.values():
        for key, values in options.items():
            together.setdefault(key, []).extend(values)
    return {"whole": {}, **PARTS, ALL: together}


def measure(model, library, repeat):
    """Milliseconds of GPU time of each variant, or why there is none."""
    import ours
    import watch

    row = {"model": model, "variants": {}}
    inputs = outputs = None
    for name, options in variants().items():
        try:
            with ours.Backward(library, model, "cuda", **options) as backward:
                plan = backward.describe()
                inputs = inputs or ours.drawn_inputs(plan)
                outputs = outputs or ours.empty_outputs(plan)
                backward.bind(inputs, outputs)
                backward.run()
                figures = {"gpu_ms": watch.gpu_ms(lambda: None, backward.run, repeat)}
                figures["predicted_ms"] = plan["predicted_us"] / 1e3
                figures["kernels"] = plan["kernels"]
                said = f"{figures['gpu_ms']['median']:.2f} ms"
        except (ours.Refused, RuntimeError) as error:
            figures = {"refused": str(error)}
            said = f"refused: {error}"
        row["variants"][name] = figures
        print(f"  {model}, without {name}: {said}" if options else f"  {model}: {said}", flush=True)
    return row


def one(options):
    import ours

    write_row(options.part, measure(options.one, ours.find_library(options.library), options.repeat))


def all_models(options):
    import one_model

    rows = []
    part = options.out.with_suffix(".one")
    for model in options.names or MODELS:
        command = [sys.executable, __file__, "--one", model, "--part", str(part)]
        command += ["--repeat", str(options.repeat)]
        command += ["--library", str(options.library)] if options.library else []
        part.unlink(missing_ok=True)
        try:
            subprocess.run(command, env=environment(), timeout=60 * MINUTES, check=True)
            rows.append(json.loads(part.read_text()))
        except (subprocess.SubprocessError, OSError) as error:
            print(f"{model}: FAILED: {error}", flush=True)
    part.unlink(missing_ok=True)
    if not rows:
        sys.exit("bench/ablate.py: no model could be measured")
    write_row(
        options.out,
        {"commit": options.commit or commit(), "machine": one_model.machine("cuda"),
         "repeat": options.repeat, "parts": PARTS, "models": rows},
    )  # fmt: skip


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="GRAPH", help="default: six models")
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE",
                        help="default: bench/results/ablation_ and the GPU's name")  # fmt: skip
    parser.add_argument("--library", help="libretrograd_backward.so, if it is somewhere else")
    parser.add_argument("--repeat", type=int, default=REPEAT)
    parser.add_argument("--commit", help="noted in the file; default: git's")
    parser.add_argument("--one", help=argparse.SUPPRESS)
    parser.add_argument("--part", type=pathlib.Path, help=argparse.SUPPRESS)
    options = parser.parse_args()
    why = missing("cuda")
    if why:
        sys.exit(f"bench/ablate.py: {why}; it measures on a machine with an NVIDIA GPU")
    if options.one:
        return one(options)
    options.out = options.out or ROOT / f"bench/results/ablation_{slug_of_device('cuda')}.json"
    all_models(options)


if __name__ == "__main__":
    main()
