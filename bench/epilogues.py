"""Products with an epilogue against the library's matmul and a kernel for the rest, on a GPU.

  bench/epilogues.py [--retrograd PROGRAM] [--output FILE] [--repeat N]

Each case is a matmul of a backward whose result one activation's backward reads, planned with
epilogues and without (--disable matmul_epilogues), with the same inputs: the time of both plans, the
caches cold, and the largest difference of their gradients.
"""

import argparse
import json
import pathlib
import subprocess
import sys
import tempfile

ACTIVATIONS = {
    # du = dh * 2 relu(u)
    "relu_square": """
%u = input name="u" kind=saved alignment=16  bf16[{m},{n}]
%two = full shape=[] value=2.0 dtype=f32
%wide = cast %u dtype=f32
%high = cast %dh dtype=f32
%positive = relu %wide
%twice = mul %two %positive
%product = mul %high %twice
%du = cast %product dtype=bf16
output %du name="du"
""",
    # du = dh * (u's own sigmoid etc.) and dv = dh * silu(u): two tensors read, two stored
    "silu_gate": """
%u = input name="u" kind=saved alignment=16  bf16[{m},{n}]
%v = input name="v" kind=saved alignment=16  bf16[{m},{n}]
%one = full shape=[] value=1.0 dtype=f32
%u32 = cast %u dtype=f32
%v32 = cast %v dtype=f32
%high = cast %dh dtype=f32
%s = sigmoid %u32
%silu = mul %u32 %s
%dv32 = mul %high %silu
%dv = cast %dv32 dtype=bf16
%rest = sub %one %s
%inner = mul %u32 %rest
%more = add %one %inner
%slope = mul %s %more
%gated = mul %high %v32
%du32 = mul %gated %slope
%du = cast %du32 dtype=bf16
output %du name="du"
output %dv name="dv"
""",
    # du = dh * (cdf(u) + u pdf(u))
    "gelu": """
%u = input name="u" kind=saved alignment=16  bf16[{m},{n}]
%u32 = cast %u dtype=f32
%high = cast %dh dtype=f32
%du32 = gelu_backward %high %u32
%du = cast %du32 dtype=bf16
output %du name="du"
""",
}

CASES = [
    ("relu_square", 98304, 2048, 512),
    ("relu_square", 32768, 2048, 512),
    ("gelu", 4096, 3072, 768),
    ("gelu", 16384, 3072, 768),
    ("silu_gate", 8192, 2816, 1024),
    ("relu_square", 8192, 4096, 2048),
    ("relu_square", 8192, 8192, 4096),
]


def text_of(activation, m, n, k):
    return (
        f'graph "{activation}"\n'
        f'%dy = input name="dy" kind=tangent alignment=16  bf16[{m},{k}]\n'
        f'%w = input name="w" kind=parameter alignment=16  bf16[{k},{n}]\n'
        "%dh = matmul %dy %w\n" + ACTIVATIONS[activation].format(m=m, n=n).lstrip()
    )


def run(program, graph, repeat, disable, save):
    command = program + ["run", graph, "--device", "cuda", "--random-inputs", "1", "--repeat", str(repeat)]
    command += ["--cold", "--kernels", "--json", "--save", save]
    for name in disable:
        command += ["--disable", name]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        sys.exit(f"epilogues.py: {' '.join(command)} ended with {done.returncode}:\n{done.stderr}")
    figures = json.loads(done.stdout[done.stdout.index("{"):])
    del figures["graph"]  # a name for the time of the run
    return figures


def largest_difference(first, second):
    """Of the gradients' elements, over the root mean square; without PyTorch None."""
    try:
        from safetensors.torch import load_file
    except ImportError:
        return None
    a, b = load_file(first), load_file(second)
    worst = 0.0
    for name in a:
        x, y = a[name].float(), b[name].float()
        worst = max(worst, ((x - y).abs().max() / x.square().mean().sqrt()).item())
    return worst


def main():
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--retrograd", default="build/release/bin/retrograd")
    parser.add_argument("--output")
    parser.add_argument("--repeat", type=int, default=30)
    arguments = parser.parse_args()
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for activation, m, n, k in CASES:
            graph = pathlib.Path(folder) / f"{activation}.rgt"
            graph.write_text(text_of(activation, m, n, k))
            row = {"activation": activation, "m": m, "n": n, "k": k}
            for kind, disable in (("together", []), ("apart", ["matmul_epilogues"])):
                saved = str(pathlib.Path(folder) / f"{kind}.safetensors")
                figures = run(arguments.retrograd.split(), str(graph), arguments.repeat, disable, saved)
                row[kind] = figures
            row["largest_difference"] = largest_difference(
                str(pathlib.Path(folder) / "together.safetensors"),
                str(pathlib.Path(folder) / "apart.safetensors"))
            rows.append(row)
            print(json.dumps(row), flush=True)
    if arguments.output:
        pathlib.Path(arguments.output).write_text(json.dumps(rows, indent=1) + "\n")


if __name__ == "__main__":
    main()
