#!/usr/bin/env python3
"""FP8 quantisers of mixtures of experts: ours beside torchao's Triton kernels, on one GPU.

  bench/quantisers.py                   every one of QUANTISERS
  bench/quantisers.py experts_1x8192x5120 columns_16640x8192_16

`experts_E x N x K`: the weights [E, N, K] of E experts, in FP8 by scales of each k, stored as
[E, K, N]. `rows` and `columns`, S x N, G: S rows in G groups, the largest of about three
times the smallest's, with a scale of each row or column of each group; groups of rows are along the
columns there. `line`: a scale of each whole row. All of bf16, to e4m3, scales rounded to powers of
two.

`block_rows` and `block_columns`: blocks of 1 x 128, and of 128 x 1 stored as the transpose;
`blocks`: both of one matrix, two ops of torchao's. `squares`: blocks of 128 x 128, stored as the
transpose.

Ours is the graph of the exporter's rows of the very ops, torchao's the ops called as they are,
behind the tuning that they do in their first call. Both run in turns, behind a spin that hides the
host, and see what the run before has left in the caches. `floor_bytes`: the matrix once, the FP8
values and the scales. `bits`: whether both give the same bytes and scales.

Needs torch, torchao, a GPU, and the library that `make build` leaves in build/release/bin.
"""

import argparse
import operator
import os
import pathlib
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
sys.path[:0] = [str(ROOT / p) for p in ("bench", "python")]

from run import commit, environment, missing, slug_of_device, write_row  # noqa: E402

INSIDE = "--inside"  # the process that measures
EXPERTS = "triton_fp8_rowwise_transpose_rhs"
COLUMNS = "triton_fp8_per_group_colwise_scales"
ROWS = "triton_fp8_per_group_rowwise_scales"
LINE = "triton_fp8_rowwise_2d_scale_and_cast"
BLOCK_ROWS = "triton_fp8_blockwise_act_quant_lhs"
BLOCK_COLUMNS = "triton_fp8_blockwise_act_quant_transposed_lhs"
SQUARES = "triton_fp8_blockwise_weight_quant_rhs"
BLOCK = 128  # elements of a side
BY_BLOCKS = (BLOCK_ROWS, BLOCK_COLUMNS, SQUARES)


def _experts(experts, rows, columns):
    return EXPERTS, (experts, rows, columns), None


def _of_groups(op, rows, columns, groups):
    return op, (rows, columns), groups


def _by_blocks(name, *ops):
    """At two sizes; several ops are given by their names with spaces between."""
    return {
        f"{name}_{m}x{n}": (" ".join(ops), (m, n), None) for m, n in ((16384, 7168), (4096, 2048))
    }


# name: (the ops, the matrix as it lies in memory, groups or None)
QUANTISERS = {
    **{f"experts_{e}x{n}x{k}": _experts(e, n, k)
       for e, n, k in ((1, 8192, 5120), (1, 5120, 8192), (16, 8192, 5120), (16, 5120, 8192),
                       (8, 2048, 1408), (8, 1408, 2048), (8, 2048, 7168))},
    **{f"columns_16640x{n}_{g}": _of_groups(COLUMNS, 16640, n, g)
       for n in (8192, 5120) for g in (1, 16, 64)},
    **{f"rows_{n}x16640_{g}": _of_groups(ROWS, n, 16640, g)
       for n in (8192, 5120) for g in (1, 16, 64)},
    "line_16640x8192": (LINE, (16640, 8192), None),
    **_by_blocks("block_rows", BLOCK_ROWS),
    **_by_blocks("block_columns", BLOCK_COLUMNS),
    **_by_blocks("blocks", BLOCK_ROWS, BLOCK_COLUMNS),
    **_by_blocks("squares", SQUARES),
}  # fmt: skip


def given(name, device):
    """(the ops, the arguments of each)."""
    import torch
    from workloads import fp8_models

    names, shape, groups = QUANTISERS[name]
    names = names.split()
    torch.manual_seed(0)
    x = torch.randn(shape, dtype=torch.bfloat16, device=device)
    if names[0] in BY_BLOCKS:
        args = (x, BLOCK, torch.float8_e4m3fn)
    else:
        args = (x.mT if names[0] == EXPERTS else x,)
        if groups is not None:
            places = shape[1] if names[0] == ROWS else shape[0]
            args += (fp8_models.ends_of(places, groups).to(device),)
        args += (torch.float8_e4m3fn, True)
    return [getattr(torch.ops.torchao, n).default for n in names], args


def captured(ops, args, results):
    """The ops as a captured backward of a node each, their inputs recorded. results: of each."""
    import torch
    from retrograd import capture, schema

    graph, inputs = torch.fx.Graph(), []

    def node_of(tensor):
        node = graph.placeholder(f"primals_{len(inputs) + 1}")
        node.meta["val"] = tensor
        span = 1 + sum((n - 1) * s for n, s in zip(tensor.shape, tensor.stride()))
        inputs.append(
            capture.CapturedInput(
                node, node.name, schema.SAVED, tensor.dtype, tuple(tensor.shape), tensor.stride(),
                16, False, False, tensor.as_strided((span,), (1,)),
            )
        )  # fmt: skip
        return node

    nodes, outputs = [node_of(a) if torch.is_tensor(a) else a for a in args], []
    for op, of_op in zip(ops, results, strict=True):
        node = graph.call_function(op, tuple(nodes))
        node.meta["val"] = of_op
        for i, result in enumerate(of_op):
            output = graph.call_function(operator.getitem, (node, i))
            output.meta["val"] = result
            strides = () if result.is_contiguous() else result.stride()
            name = f"output_{len(outputs)}"
            outputs.append(capture.CapturedOutput(output, name, result.dtype, strides, result))
    return capture.CapturedBackward(graph, inputs, outputs, schema.Graph().numerics)


def measure(name, options, folder):
    """The row of one quantiser."""
    import ops
    from measure import one_model, ours, watch
    from retrograd.translate import translate

    called, args = given(name, options.device)
    results = [op(*args) for op in called]
    theirs = [r for of_op in results for r in of_op]
    one = captured(called, args, results)
    graph, constants = translate(one, name)
    path = pathlib.Path(folder, f"{name}.bwd.pb")
    path.write_bytes(graph.SerializeToString(deterministic=True))
    where = "host" if options.device == "cpu" else "cuda"
    known = {"spec": options.spec} if options.spec else {}
    with ours.Backward(options.library, path, where, deterministic=True,
                       cache_dir=f"{folder}/cache", **known) as backward:  # fmt: skip
        tensors = [i.recorded for i in one.inputs] + list(constants.values())
        backward.bind(tensors, ours.room_for(one.outputs, options.device))
        backward.run()
        watch.synchronize()
        last = int(args[1][-1]) if len(args) > 3 else None  # where groups end
        same = all(_same(g, t, last) for g, t in zip(backward.gradients, theirs))
        sides = {"ours": backward.run, "torchao": lambda: [op(*args) for op in called]}
        figures = ops.in_turns(sides, options.repeat)
        said = backward.describe()
        row = {
            "quantiser": name, "op": " ".join(op.name() for op in called),
            "commit": options.commit, "bits": same,
            "machine": one_model.machine(options.device), "gpu_ms": figures,
            "floor_bytes": _bytes(args[0]) + sum(_bytes(t) for t in theirs),
            "predicted_ms": said["predicted_us"] / 1e3, "plans": said["plans"],
            "kernels": said["kernels"], "unequal_gradients_of_4_runs": ops._unequal(backward),
        }  # fmt: skip
    ms = {side: f["median"] for side, f in figures.items()}
    row["ratio"] = ms["ours"] / ms["torchao"]
    row["floor_tb_s"] = row["floor_bytes"] / ms["ours"] / 1e9
    return row


def _bytes(tensor):
    return tensor.numel() * tensor.element_size()


def _same(got, want, last):
    """Bit for bit. last: where groups end; torchao leaves what lies behind as it was."""
    import torch

    got = got.as_strided(want.shape, want.stride())
    if want.dtype == torch.float8_e4m3fn:
        got, want = got.view(torch.uint8), want.view(torch.uint8)
        if last is not None and last < max(want.shape):
            return True  # nothing is defined there
    return bool(torch.equal(got, want))


def summary(row):
    """One line on a row."""
    ms = {side: f["median"] * 1e3 for side, f in row["gpu_ms"].items()}
    sides = ", ".join(f"{side} {us:.1f} us" for side, us in ms.items())
    bits = "same bits" if row["bits"] else "OTHER BITS"
    return (
        f"{row['quantiser']}: {sides}; {row['ratio']:.3f}; {row['floor_tb_s']:.2f} TB/s, predicted "
        f"{row['predicted_ms'] * 1e3:.1f} us; {bits}"
    )


def parsed(arguments):
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("names", nargs="*", metavar="NAME", help="of QUANTISERS; default: all")
    parser.add_argument("--out", type=pathlib.Path, metavar="FILE",
                        help="default: bench/results/quantisers_ and the GPU's name")  # fmt: skip
    parser.add_argument("--commit", help="noted in the file; default: git's")
    parser.add_argument("--repeat", type=int, default=15, help="samples of each side")
    parser.add_argument("--library", help="libretrograd.so, if it is somewhere else")
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda",
                        help="cpu tries the script; the times mean nothing")  # fmt: skip
    parser.add_argument("--spec", default="", help="what ours is planned for; default: the device")
    parser.add_argument(INSIDE, action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args(arguments)
    unknown = [n for n in options.names if n not in QUANTISERS]
    if unknown:
        parser.error(f"no {unknown[0]!r}; there are {', '.join(QUANTISERS)}")
    options.names = options.names or list(QUANTISERS)
    return options


def run(options):
    rows = []
    with tempfile.TemporaryDirectory(prefix="retrograd_quantisers_") as folder:
        for name in options.names:
            rows.append(measure(name, options, folder))
            write_row(options.out, {"format": 1, "quantisers": rows})
            print(summary(rows[-1]), flush=True)


def main():
    if INSIDE not in sys.argv:  # libraries are looked for where the process was told when it began
        os.execve(sys.executable, [sys.executable, __file__, *sys.argv[1:], INSIDE], environment())
    options = parsed(sys.argv[1:])
    why = missing(options.device)
    if why:
        sys.exit(f"bench/quantisers.py: {why}; it measures on a machine with an NVIDIA GPU")
    try:
        from torchao.prototype.blockwise_fp8_training import kernels as blockwise  # noqa: F401
        from torchao.prototype.moe_training import kernels  # noqa: F401
    except ImportError as error:
        sys.exit(f"bench/quantisers.py: {error.name} is not installed")
    from measure import ours

    options.library = ours.find_library(options.library)
    if options.out is None:
        options.out = ROOT / f"bench/results/quantisers_{slug_of_device(options.device)}.json"
    options.commit = commit() if options.commit is None else options.commit
    run(options)


if __name__ == "__main__":
    sys.exit(main())
