"""What each choice of a tuned file wins within the backward that it was made for, on a GPU.

  bench/choices.py GRAPH TUNED [--retrograd PROGRAM] [--output FILE] [--repeat N] [--calls N]

GRAPH is a file or a model's name, TUNED what `retrograd tune GRAPH -o TUNED` wrote. The backward is
timed with the default of every call, with all that was chosen, and with each choice alone that is
not the default. An implementation that wins alone may lose beside the calls that it runs with.
Times are medians of the device's, the host hidden; each is taken --calls times, since two processes
differ.
"""

import argparse
import json
import pathlib
import re
import subprocess
import sys
import tempfile

BEGIN = "\nchoice {"


def split(text):
    """A tuned file's text: what stands in front, and its choices."""
    head, *choices = text.split(BEGIN)
    return head, choices


def joined(head, choices):
    return head + "".join(BEGIN + choice for choice in choices)


def field(choice, name):
    """A choice's field, without quotes."""
    return re.search(rf'\n  {name}: "?(.*?)"?\n', choice).group(1)


def defaulted(choice):
    """The choice with its default chosen."""
    default = field(choice, "default")
    return re.sub(r'\n  chosen: ".*?"\n', lambda _: f'\n  chosen: "{default}"\n', choice)


def variants(text):
    """[(name, call, margin alone, the file's text)] of the backwards to be timed."""
    head, choices = split(text)
    defaults = [defaulted(choice) for choice in choices]
    made = [
        ("all defaults", None, None, joined(head, defaults)),
        ("all choices", None, None, joined(head, choices)),
    ]
    for i, choice in enumerate(choices):
        if field(choice, "chosen") == field(choice, "default"):
            continue
        alone = [*defaults[:i], choice, *defaults[i + 1 :]]
        made.append(
            (
                f"{field(choice, 'kind')}: {field(choice, 'chosen')}",
                field(choice, "call"),
                float(field(choice, "margin")),
                joined(head, alone),
            )
        )
    return made


def measure(options, text):
    """Microseconds of the backward, by each of several processes."""
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder, "choices.textproto")
        file.write_text(text)
        command = [
            options.retrograd, "run", options.graph, "--device", "cuda", "--random-inputs", "1",
            "--repeat", str(options.repeat), "--tuned", str(file), "--json",
        ]  # fmt: skip
        times = []
        for _ in range(options.calls):
            done = subprocess.run(command, capture_output=True, text=True, check=False)
            if done.returncode != 0:
                sys.exit(f"bench/choices.py: {done.stderr.strip() or done.stdout.strip()}")
            times.append(round(json.loads(done.stdout[done.stdout.index("{") :])["measured_us"], 1))
        return times


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("graph", metavar="GRAPH")
    parser.add_argument("tuned", type=pathlib.Path, metavar="TUNED")
    parser.add_argument("--retrograd", default="build/release/bin/retrograd", metavar="PROGRAM")
    parser.add_argument("--output", type=pathlib.Path, metavar="FILE")
    parser.add_argument("--repeat", type=int, default=60)
    parser.add_argument("--calls", type=int, default=2, metavar="N", help="processes of each")
    options = parser.parse_args()
    rows = []
    for name, call, margin, text in variants(options.tuned.read_text()):
        rows.append({"name": name, "call": call, "margin": margin, "us": measure(options, text)})
        won = "" if margin is None else f", {100 * margin:.1f}% less alone"
        print(f"{rows[-1]['us']} us  {name}{won}  {call or ''}", flush=True)
    if options.output:
        command = " ".join(["bench/choices.py", *sys.argv[1:]])
        options.output.write_text(json.dumps({"command": command, "rows": rows}, indent=1) + "\n")


if __name__ == "__main__":
    main()
