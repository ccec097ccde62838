#!/usr/bin/env python3
"""One backward on one stream, on two, on three and on as many as the schedule chooses, in turns.

  bench/run.py resnet50_b2 mobilenetv3_b2 --graphs DIR    leaves the captured graphs there
  bench/streams.py DIR/*.bwd.pb bert --out FILE           models by file or by name

Each is planned once for every number of streams, with early launches and without, and runs on
random inputs with the host hidden. A line a program: microseconds, their ratio to one stream
without early launches, what was predicted, streams used, bytes of the arena. "chosen" should be no
slower than the fastest of the others; where it is, a price or a row of the spec's interference is
wrong.

Needs torch, a GPU, and the library that `make build` leaves in build/release/bin; no network.
"""

import argparse
import json
import pathlib
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / p) for p in ("bench", "python")]

from measure import ours, watch  # noqa: E402

SAMPLE_MS = 4  # of one sample at least
WAYS = {"one": 1, "two": 2, "three": 3, "chosen": 0}


def ways(early, numbers):
    """name: options, the reference first. numbers: of the spec, each for a way of its own."""
    made = {}
    for launches in early:
        for name, streams in WAYS.items():
            label = name if launches else f"{name}, none early"
            made[label] = {"streams": streams, "early_launches": launches}
    for number in numbers:
        made[f"chosen, {number}"] = {"streams": 0, "set": [number]}
    return made


def measure(graph, options):
    device = "cpu" if options.device == "host" else "cuda"
    known = {"cache_dir": options.cache} if options.cache else {}
    known |= {"spec": options.spec} if options.spec else {}
    opened = {}
    try:
        for name, how in ways((False, True), options.set).items():
            opened[name] = ours.Backward(options.library, graph, options.device, **known, **how)
        first = next(iter(opened.values()))
        said = first.describe()
        inputs, outputs = ours.drawn_inputs(said, device), ours.empty_outputs(said, device)
        for backward in opened.values():
            backward.bind(inputs, outputs)
            backward.run()
        times = watch.in_turns([b.run for b in opened.values()], options.repeat, SAMPLE_MS)
        rows = {}
        for (name, backward), ms in zip(opened.items(), times):
            said = backward.describe()
            rows[name] = {
                "gpu_ms": ms,
                "ratio": ms["median"] / times[0]["median"],
                **{key: said[key] for key in ("streams", "makespan_us", "early", "arena_bytes")},
            }
        return rows
    finally:
        for backward in opened.values():
            backward.close()


def line(name, row):
    return (
        f"  {name:36} {1e3 * row['gpu_ms']['median']:9.1f} us  {row['ratio']:.3f}  predicted "
        f"{row['makespan_us']:9.1f} us on {row['streams']}, {row['early']} early, arena "
        f"{row['arena_bytes'] / 2**20:.1f} MiB"
    )


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("graphs", nargs="+")
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--spec")
    parser.add_argument("--cache")
    parser.add_argument("--set", action="append", default=[], metavar="NUMBER=VALUE",
                        help="of the spec, such as early_launch_longest_us=2; repeatable: one way "
                        "for each")  # fmt: skip
    parser.add_argument("--repeat", type=int, default=15)
    parser.add_argument("--library", default=ROOT / "build/release/bin" / ours.NAME)
    parser.add_argument("--out", type=pathlib.Path)
    options = parser.parse_args()
    result = {}
    for graph in options.graphs:
        print(graph, flush=True)
        try:
            result[graph] = measure(graph, options)
        except ours.Refused as error:
            result[graph] = {"refused": str(error)}
            print(f"  refused: {error}", flush=True)
            continue
        for name, row in result[graph].items():
            print(line(name, row), flush=True)
        if options.out:
            options.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
