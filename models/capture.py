#!/usr/bin/env python3
"""Captures the graphs of models/graphs from PyTorch.

  models/capture.py --device cpu               the tiny models in fp32: NAME.bwd.pb and a bundle
  models/capture.py --device cuda              under bf16 autocast: the tiny models as NAME_h200 and
                                               the full-size ones (graph only, nothing is run)
  models/capture.py --device cuda golf_tiny    one of them
  models/capture.py --dynamic --out tests/data/sizes gpt2 bert_base golf_gpt_34m_b32
                                               graphs that leave the batch and, of models of the
                                               transformers package, the length open (graph only,
                                               under bf16 autocast on either device)

Needs torch, transformers (for BERT, GPT-2, Llama), protobuf and safetensors; no build, no network.
"""

import argparse
import inspect
import pathlib
import sys
import time
import traceback

import torch

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / "python"), str(ROOT / "models")]

import retrograd  # noqa: E402
import zoo  # noqa: E402
from retrograd import schema  # noqa: E402


def capture(name, device, out):
    """Writes one model's graph, and its bundle if it is a tiny one; returns the paths."""
    model, args, kwargs = zoo.make(name, device)
    tiny = name in zoo.TINY
    file = name + ("_h200" if device == "cuda" and tiny else "")
    with torch.autocast(device, dtype=torch.bfloat16, enabled=device == "cuda"):
        return retrograd.export_backward(
            model, args, kwargs, out / file, bundle=True if tiny else None, run=tiny
        )


def capture_dynamic(name, device, out):
    """Writes one model's graph with the sizes of its token lists left open; returns the paths."""
    model, args, kwargs = zoo.make(name, device)
    # Golf's own rotary tables have one length.
    parameters = inspect.signature(model.forward).parameters
    shapes = {argument: {0: "batch"} for argument, _ in zip(parameters, args)}
    for argument, value in kwargs.items():
        if isinstance(value, torch.Tensor) and value.dim() == 2:
            longest = value.shape[1]
            shapes[argument] = {0: "batch", 1: torch.export.Dim("length", max=longest)}
    with torch.autocast(device, dtype=torch.bfloat16):
        return retrograd.export_backward(
            model, args, kwargs, out / name, run=False, dynamic_shapes=shapes
        )


def describe(path):
    """One line on a captured graph."""
    graph = schema.load(path)
    kinds = {}
    for node in graph.nodes:
        kinds[node.op] = kinds.get(node.op, 0) + 1
    variants = sorted({a.s for n in graph.nodes for a in n.attrs if a.name == "variant"})
    size = path.stat().st_size
    bundle = path.with_name(path.name.replace(".bwd.pb", ".safetensors"))
    size += bundle.stat().st_size if bundle.exists() else 0
    return (
        f"{path.name}: {len(graph.nodes)} nodes, {kinds['input']} inputs, "
        f"{len(graph.outputs)} outputs, {kinds.get('matmul', 0)} matmuls, "
        f"{kinds.get('attention_backward', 0)} attention ({', '.join(variants)}), "
        f"{size / 1024:.0f} KiB with its bundle"
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument(
        "names", nargs="*", metavar="NAME", help="models; all for the device if none"
    )
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--out", type=pathlib.Path, default=ROOT / "models" / "graphs")
    parser.add_argument("--dynamic", action="store_true", help="leave sizes open")
    options = parser.parse_args()
    if options.dynamic and not options.names:
        parser.error("--dynamic needs the names of models")
    write = capture_dynamic if options.dynamic else capture
    names = options.names or list(zoo.TINY if options.device == "cpu" else zoo.KEPT)
    try:
        for name in names:
            zoo.maker(name)
    except ValueError as error:
        parser.error(str(error))
    failed = []
    for name in names:
        start = time.monotonic()
        try:
            for path in write(name, options.device, options.out):
                print(f"{describe(path)}, {time.monotonic() - start:.1f} s", flush=True)
        except Exception:  # the other models are still wanted
            failed.append(name)
            print(f"{name}: FAILED", flush=True)
            traceback.print_exc()
    if failed:
        sys.exit(f"{len(failed)} of {len(names)} models failed: {', '.join(failed)}")


if __name__ == "__main__":
    main()
