"""The page docs/benchmarks.md, into which scripts write tables of what is in bench/results.

A table stands between <!-- NAME --> and <!-- /NAME -->, with the name of its file or folder.
"""

import argparse
import pathlib
import re
import sys

ROOT = pathlib.Path(__file__).resolve().parents[2]
PAGE = ROOT / "docs/benchmarks.md"


def written(text, pattern, table):
    """The text with table(path) for each path of bench/results that the pattern names."""
    for path in sorted((ROOT / "bench/results").glob(pattern)):
        begin, end = f"<!-- {path.stem} -->", f"<!-- /{path.stem} -->"
        block = f"{begin}\n{table(path)}\n{end}"
        text, count = re.subn(
            f"{re.escape(begin)}.*?{re.escape(end)}", lambda _, b=block: b, text, flags=re.DOTALL
        )
        if count != 1:
            sys.exit(f"{PAGE}: {begin} and {end} are needed once, found {count} times")
    return text


def main(script, doc, pattern, table):
    """The command line of a script: rewrites the page, or with --check says whether it would."""
    parser = argparse.ArgumentParser(description=doc.splitlines()[0])
    parser.add_argument("--check", action="store_true")
    options = parser.parse_args()
    before = PAGE.read_text()
    after = written(before, pattern, table)
    if options.check and before != after:
        sys.exit(f"{PAGE} is not what {script} writes of bench/results: run it")
    if before != after:
        PAGE.write_text(after)
