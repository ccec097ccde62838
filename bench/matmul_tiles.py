#!/usr/bin/env python3
"""Matmuls of odd sides, and batches of small matrices: a library's algorithms beside tiles of ours.

    bench/matmul_tiles.py --out FILE [--retrograd COMMAND] [--budget SECONDS] [--commit HASH]

Each product is a matmul of its own in one graph, which `retrograd tune` loads: cuBLASLt's
algorithms and our tiles take turns there, each in a row of runs with warm caches (docs/tuning.md).
FILE holds for each product the times of the fastest of both, in microseconds, and the bytes of its
matrices. Nothing is padded or merged, so that odd sides meet the library as they are;
the padded products stand beside them. Needs a GPU and a build; no PyTorch.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
BYTES = {"bf16": 2, "f16": 2, "f32": 4}
KEPT_AS_THEY_ARE = (
    "pad_operands",
    "merged_matmuls",
    "thin_matmuls",
    "matmul_epilogues",
    "padded_rows",
    "pitches",
)
FORMS = ("nn", "nt", "tn")  # which operand lies transposed


def _windows():
    """Attention of windows: 49 places in heads of 32."""
    for batch in (768, 1536, 6144):
        yield batch, 49, 49, 32, "nt"
        yield batch, 49, 32, 49, "nn"
        yield batch, 49, 32, 49, "tn"


def _batches():
    """Attention of images and texts of other lengths, channels against channels, squares."""
    for batch, length, width in (
        (192, 250, 64), (64, 197, 64), (48, 577, 64), (1024, 17, 64), (2048, 100, 32),
        (3072, 33, 40), (512, 128, 64), (2048, 64, 32), (96, 384, 64), (512, 81, 72),
    ):  # fmt: skip
        yield batch, length, length, width, "nt"
        yield batch, length, width, length, "nn"
        yield batch, length, width, length, "tn"
    for sides in (
        (48, 196, 48),
        (48, 48, 196),
        (196, 48, 48),
        (16, 16, 16),
        (64, 64, 64),
        (127, 127, 127),
    ):
        yield 128, *sides, "nn"
        yield 4096, *(min(side, 64) for side in sides), "nn"


def _odd():
    """Products of layers, with one side or all of them off by 1, 2 or 4; and the aligned ones."""
    for m, n, k in ((4096, 768, 768), (3152, 384, 1536), (8192, 1024, 4096)):
        for off in (0, 1, 2, 4):
            for form in FORMS:
                yield 1, m, n, k - off, form
            if off:
                yield 1, m, n - off, k, "nn"
                yield 1, m, n - off, k, "nt"
                yield 1, m - off, n, k, "tn"
                yield 1, m - off, n - off, k - off, "nn"


def _vocabularies():
    for words, width, rows in ((50257, 768, 4096), (30522, 768, 2048)):
        for of in (words, (words + 7) // 8 * 8):
            yield 1, rows, width, of, "nn"
            yield 1, of, width, rows, "tn"
            yield 1, rows, of, width, "nt"


def _graphs():
    """Layers of graph networks: many nodes of odd numbers of features."""
    for nodes, features, width in (
        (20000, 602, 64),
        (2708, 1433, 16),
        (16000, 601, 256),
        (2048, 4099, 512),
    ):
        for of in (features, (features + 7) // 8 * 8):
            yield 1, nodes, width, of, "nn"
            yield 1, of, width, nodes, "tn"
            yield 1, nodes, of, width, "nt"


def products():
    found = []
    for family, of in (("windows", _windows), ("batches", _batches), ("odd", _odd),
                       ("vocabularies", _vocabularies), ("graphs", _graphs)):  # fmt: skip
        for product in of():
            if (family, "bf16", *product) not in found:
                found.append((family, "bf16", *product))
    for product in ((768, 49, 49, 32, "nt"), (1024, 64, 64, 64, "nn"), (192, 250, 64, 250, "nn"),
                    (1, 4096, 767, 768, "nn"), (1, 4096, 768, 768, "nn")):  # fmt: skip
        found.append(("fp32", "f32", *product))
    return found


def graph_of(found):
    """The text of a graph with a matmul for each product."""
    lines, outputs = [], []

    def line(text):
        lines.append(f"%{len(lines)} = {text}")
        return len(lines) - 1

    def operand(name, dtype, batch, rows, columns, turned):
        shape = [columns, rows] if turned else [rows, columns]
        dims = ",".join(str(side) for side in ([batch] if batch > 1 else []) + shape)
        made = line(f'input name="{name}" kind=saved alignment=16  {dtype}[{dims}]')
        if not turned:
            return made
        return line(f"permute %{made} perm={'[0,2,1]' if batch > 1 else '[1,0]'}")

    for number, (_, dtype, batch, m, n, k, form) in enumerate(found):
        a = operand(f"a{number}", dtype, batch, m, k, form[0] == "t")
        b = operand(f"b{number}", dtype, batch, k, n, form[1] == "t")
        outputs.append(f'output %{line(f"matmul %{a} %{b}")} name="d{number}"')
    return "\n".join(lines + outputs) + "\n"


CHOICE = re.compile(r"choice \{(.*?)^\}", re.DOTALL | re.MULTILINE)
FIELD = re.compile(r'(\w+): "([^"]*)"')
CANDIDATE = re.compile(r'candidate \{ ?name: "([^"]*)" us: ([0-9.e+-]+) ?\}')


def choices_of(text):
    """By the text of a call: its candidates, [(name, us)]."""
    found = {}
    for choice in CHOICE.findall(text):
        fields = dict(FIELD.findall(CANDIDATE.sub("", choice)))
        timed = [(name, float(us)) for name, us in CANDIDATE.findall(choice)]
        found[fields["call"]] = [(name, us) for name, us in timed if us > 0]
    return found


def call_of(product):
    """What the text of its call begins with, and the strides of its operands."""
    _, dtype, batch, m, n, k, form = product
    of_batch = f", batch {batch}" if batch > 1 else ""
    a = f"1 {m}" if form[0] == "t" else f"{k} 1"
    b = f"1 {k}" if form[1] == "t" else f"{n} 1"
    return f"matmul {m}x{n}x{k}{of_batch}, {dtype} to {dtype}", a, b


def is_call_of(product, call):
    begin, a, b = call_of(product)
    strides = [" ".join(of.split()[:2]) for of in re.findall(r"\[([^\]]*)\]", call)]
    text = call.partition("[")[0].removesuffix("tf32 ").strip()
    return text == begin and strides[:2] == [a, b]


def row_of(product, choices):
    of = [timed for call, timed in choices.items() if is_call_of(product, call)]
    family, dtype, batch, m, n, k, form = product
    row = {"family": family, "dtype": dtype, "batch": batch, "m": m, "n": n, "k": k, "form": form}
    row["bytes"] = BYTES[dtype] * batch * (m * k + k * n + m * n)
    if len(of) != 1:
        return row | {"found": len(of)}
    ours = [(name, us) for name, us in of[0] if "kernels of ours" in name]
    library = [(name, us) for name, us in of[0] if "kernels of ours" not in name]
    for side, timed in (("library", library), ("ours", ours)):
        if timed:
            name, us = min(timed, key=lambda one: one[1])
            row[side] = {"us": us, "name": name}
    return row


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawTextHelpFormatter
    )
    parser.add_argument("--out", type=pathlib.Path, required=True)
    parser.add_argument("--retrograd", default=str(ROOT / "build/release/bin/retrograd"))
    parser.add_argument("--budget", type=float, default=0)
    parser.add_argument("--commit", default="")
    options = parser.parse_args()
    found = products()
    with tempfile.TemporaryDirectory() as scratch:
        graph, tuned = (
            pathlib.Path(scratch, "matmuls.rgt"),
            pathlib.Path(scratch, "tuned.textproto"),
        )
        graph.write_text(graph_of(found))
        command = [
            *options.retrograd.split(),
            "tune",
            str(graph),
            "-o",
            str(tuned),
            "--budget",
            str(options.budget),
        ]
        for name in KEPT_AS_THEY_ARE:
            command += ["--disable", name]
        subprocess.run(command, check=True, stderr=subprocess.DEVNULL)
        text = tuned.read_text()
    choices = choices_of(text)
    machine = {
        field: value for field, value in FIELD.findall(text) if field in ("device", "library")
    }
    driver = ["nvidia-smi", "--query-gpu=driver_version", "--format=csv,noheader"]
    machine["driver"] = subprocess.run(
        driver, check=True, capture_output=True, text=True
    ).stdout.strip()
    result = {
        "command": " ".join(sys.argv),
        "commit": options.commit,
        "machine": machine,
        "products": [row_of(product, choices) for product in found],
    }
    options.out.write_text(json.dumps(result, indent=1) + "\n")
    for row in result["products"]:
        times = [f"{side} {row[side]['us']:8.2f}" for side in ("library", "ours") if side in row]
        print(
            row["family"],
            row["batch"],
            row["m"],
            row["n"],
            row["k"],
            row["form"],
            *times,
            row.get("found", ""),
        )


if __name__ == "__main__":
    main()
