"""Times each tile of the GEMM kernels with an epilogue, on a GPU: one call, a few minutes.

  bench/gemm_tiles.py [--retrograd PROGRAM] [--spec FILE] [--clusters 1 2 4] [--output FILE]

Each shape is a matmul whose result one activation's backward reads (bench/epilogues.py). For each tile it
is planned with a device spec that lists this tile alone and prices its kernel at next to nothing, beside
the library's matmul and a pass, with the same inputs: the time of both, the caches cold, and the largest
difference of their gradients. In the end: for each tile the factor that a device spec states, the time over
that of the reference tile (128 x 128, clusters of two) per wave and element, by median over the shapes.
"""

import argparse
import json
import pathlib
import re
import statistics
import subprocess
import sys
import tempfile

import epilogues

# Rows and columns of a tile; all that fusion/kernel/gemm/gemm_tile.h has a kernel for.
TILES = [(128, 128), (64, 256), (192, 64), (64, 128), (128, 64), (64, 64)]
REFERENCE = (128, 128, 2)

# Of transformers, then such as leave SMs without a tile.
SHAPES = [
    (98304, 2048, 512),
    (16384, 3072, 768),
    (8192, 4096, 2048),
    (8192, 2816, 1024),
    (4096, 3072, 768),
    (2048, 2048, 512),
    (1024, 1024, 512),
    (512, 512, 512),
]


def spec_with(text, tile, cluster):
    """The device spec with this tile alone, whose kernels are always worth it."""
    text = re.sub(r"\n *tiles \{[^}]*\}", "", text)
    text = re.sub(r"product_factor: [0-9.]+", "product_factor: 1", text)
    text = re.sub(r"pass_share: [0-9.]+", "pass_share: 0.001", text)
    only = f'tiles {{ rows: {tile[0]} columns: {tile[1]} cluster: {cluster} factor: 1 source: "timed" }}'
    return re.sub(r"(max_stores: [0-9]+)", rf"\1\n  {only}", text)


def run(program, graph, spec, repeat, save, disable=()):
    command = program + ["run", graph, "--device", "cuda", "--spec", spec, "--random-inputs", "1"]
    command += ["--repeat", str(repeat), "--cold", "--kernels", "--json", "--save", save]
    for name in disable:
        command += ["--disable", name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        return {"refused": done.stderr.strip()[-400:]}
    return json.loads(done.stdout[done.stdout.index("{"):])


def ceil_div(a, b):
    return -(-a // b)


def elements_of_waves(m, n, tile, sms):
    """Proportional to the time at full efficiency, as fusion/kernel/gemm/gemm_candidates.cc has it."""
    rows, columns, cluster = tile
    tall = wide = 2 if cluster == 4 else 1
    if cluster == 2:
        side_by_side = n > columns and (rows >= columns or m <= rows)
        tall, wide = (1, 2) if side_by_side else (2, 1)
    clusters = ceil_div(ceil_div(m, rows), tall) * ceil_div(ceil_div(n, columns), wide)
    return ceil_div(clusters, sms // cluster) * rows * columns


def factors(rows, sms):
    """By tile: the median over shapes of its time by wave and element, over the reference tile's."""
    reference = {(r["m"], r["n"], r["k"]): r for r in rows if tuple(r["tile"]) == REFERENCE and "us" in r}
    found = {}
    for row in rows:
        base = reference.get((row["m"], row["n"], row["k"]))
        if base is None or "us" not in row:
            continue
        mine = row["us"] / elements_of_waves(row["m"], row["n"], row["tile"], sms)
        theirs = base["us"] / elements_of_waves(row["m"], row["n"], REFERENCE, sms)
        found.setdefault(tuple(row["tile"]), []).append(mine / theirs)
    return {tile: statistics.median(values) for tile, values in found.items()}


def main():
    root = pathlib.Path(__file__).resolve().parent.parent
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--retrograd", default="build/release/bin/retrograd")
    parser.add_argument("--spec", default=str(root / "fusion/devices/h200.textproto"))
    parser.add_argument("--clusters", type=int, nargs="*", default=[2])
    parser.add_argument("--activation", default="relu_square", choices=epilogues.ACTIVATIONS)
    parser.add_argument("--repeat", type=int, default=20)
    parser.add_argument("--output")
    arguments = parser.parse_args()
    program, text = arguments.retrograd.split(), pathlib.Path(arguments.spec).read_text()
    sms = int(re.search(r"^sms \{ value: (\d+)", text, re.M)[1])
    tiles = [(*tile, cluster) for cluster in arguments.clusters for tile in TILES]
    if REFERENCE not in tiles:
        tiles.insert(0, REFERENCE)
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        folder = pathlib.Path(folder)
        graph, spec = str(folder / "graph.rgt"), folder / "spec.textproto"
        saved = {kind: str(folder / f"{kind}.safetensors") for kind in ("together", "apart")}
        for m, n, k in SHAPES:
            pathlib.Path(graph).write_text(epilogues.text_of(arguments.activation, m, n, k))
            apart = run(program, graph, arguments.spec, arguments.repeat, saved["apart"], ["matmul_epilogues"])
            if "refused" in apart:
                sys.exit(f"gemm_tiles.py: {apart['refused']}")
            for tile in tiles:
                spec.write_text(spec_with(text, tile[:2], tile[2]))
                figures = run(program, graph, str(spec), arguments.repeat, saved["together"])
                row = {"m": m, "n": n, "k": k, "tile": tile, "apart_us": apart["measured_us"]}
                if "refused" in figures:
                    row["refused"] = figures["refused"]
                elif figures["kernels"] != 1:
                    row["refused"] = "planned as two kernels"
                else:
                    row["us"] = figures["measured_us"]
                    row["predicted_us"] = figures["predicted_us"]
                    row["largest_difference"] = epilogues.largest_difference(saved["together"], saved["apart"])
                rows.append(row)
                print(json.dumps(row), flush=True)
    summary = [{"tile": tile, "factor": round(factor, 3)} for tile, factor in factors(rows, sms).items()]
    for line in summary:
        print(json.dumps(line), flush=True)
    if arguments.output:
        pathlib.Path(arguments.output).write_text(json.dumps({"rows": rows, "factors": summary}, indent=1) + "\n")


if __name__ == "__main__":
    main()
