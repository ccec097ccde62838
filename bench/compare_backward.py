#!/usr/bin/env python3
"""Backward of full-size captured models: ours beside PyTorch's, one after the other on one GPU.

  bench/compare_backward.py --retrograd build/release/bin/retrograd --out bench/results/NAME.json
  bench/compare_backward.py --retrograd DIR/bin/retrograd golf_gpt_34m_b32

PyTorch's is what torch.compile makes of the model of models/zoo.py under bf16 autocast: the median time
between events around backward(). Ours is the recorded graph of the same model with random inputs
(`retrograd run --repeat`), deterministic and with attention that may sum in any order, as PyTorch's does.
Both sides keep the GPU busy while the host issues the work, so that only the GPU's time counts. That both
backwards save the same bytes is not checked. Norms stand beside their predictions alone.
Needs torch and a GPU; no network.
"""

import argparse
import json
import pathlib
import statistics
import subprocess
import sys

import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "models"))

import zoo  # noqa: E402

HIDING_CYCLES = 200_000_000  # about 0.1 s: longer than the host takes to issue a backward
MODES = {"default": True, "mix_order_reduction_off": False}
NORMS = {
    "rms_norm 16384x4096": "norm_stack",
    "rms_norm 8192x8192": "norm_stack:rows=8192,columns=8192",
    "rms_norm 4096x16384": "norm_stack:rows=4096,columns=16384",
    "rms_norm 98304x512": "norm_stack:rows=98304,columns=512",
    "layer_norm 1024x12288": "norm_stack:rows=1024,columns=12288,norm=layer",
}


def pytorch_ms(name, mix_order, repeat):
    """Milliseconds of one compiled backward: median and least."""
    import torch._inductor.config as inductor

    inductor.triton.mix_order_reduction = mix_order
    torch._dynamo.reset()
    torch.set_float32_matmul_precision("high")
    model, args, kwargs = zoo.make(name, "cuda")
    compiled = torch.compile(model)

    def step():
        with torch.autocast("cuda", dtype=torch.bfloat16):
            loss = compiled(*args, **kwargs)
        loss = getattr(loss, "loss", loss)
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        torch.cuda.synchronize()
        torch.cuda._sleep(HIDING_CYCLES)
        begin.record()
        loss.backward()
        end.record()
        torch.cuda.synchronize()
        model.zero_grad(set_to_none=True)
        return begin.elapsed_time(end)

    for _ in range(4):
        step()
    times = [step() for _ in range(repeat)]
    del model, compiled
    torch.cuda.empty_cache()
    return {"median_ms": statistics.median(times), "least_ms": min(times)}


def ours(program, graph, repeat, *options):
    """What `retrograd run --json` says, without its list of steps."""
    command = [program, "run", graph, "--device", "cuda", "--random-inputs", "1"]
    command += ["--repeat", str(repeat), "--json", *options]
    text = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    result = {k: v for k, v in json.loads(text).items() if not isinstance(v, list)}
    result["median_ms"] = result["measured_us"] / 1e3
    return result


def compare(program, name, repeat):
    row = {"model": name, "ours": ours(program, name, repeat)}
    row["ours_nondeterministic"] = ours(program, name, repeat, "--nondeterministic")
    row["pytorch"] = {mode: pytorch_ms(name, mix, repeat) for mode, mix in MODES.items()}
    best = min(mode["median_ms"] for mode in row["pytorch"].values())
    for side in ("ours", "ours_nondeterministic"):
        row[side]["ratio_to_best"] = row[side]["median_ms"] / best
        row[side]["ratio_to_default"] = row[side]["median_ms"] / row["pytorch"]["default"]["median_ms"]
    return row


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="models; default: all of full size")
    parser.add_argument("--retrograd", required=True, help="the program, or what starts it")
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--commit", default="", help="noted in the file")
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    driver = subprocess.run(
        ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"],
        capture_output=True, text=True,
    )  # fmt: skip
    result = {
        "command": "bench/compare_backward.py " + " ".join(options.names),
        "commit": options.commit,
        "gpu": torch.cuda.get_device_name(),
        "driver": driver.stdout.strip(),
        "pytorch": torch.__version__,
        "cudnn": torch.backends.cudnn.version(),
        "models": [],
        "norms": {},
    }
    for label, graph in NORMS.items():
        norm = ours(options.retrograd, graph, 30)
        result["norms"][label] = {k: norm[k] for k in ("measured_us", "predicted_us", "least_us")}
        print(f"{label:24} {norm['measured_us']:8.1f} us, predicted {norm['predicted_us']:.1f}", flush=True)
    for name in options.names or zoo.FULL_SIZE:
        row = compare(options.retrograd, name, options.repeat)
        result["models"].append(row)
        times = {mode: round(t["median_ms"], 2) for mode, t in row["pytorch"].items()}
        print(
            f"{name:24} ours {row['ours']['median_ms']:.2f} ms, nondeterministic "
            f"{row['ours_nondeterministic']['median_ms']:.2f}, PyTorch {times}: "
            f"{row['ours']['ratio_to_best']:.3f} and {row['ours_nondeterministic']['ratio_to_best']:.3f} "
            "of its best",
            flush=True,
        )
    if options.out:
        options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
