"""Backward graphs that leave sizes open, at given sizes: static:NAME@SIZES and dynamic:NAME@SIZES.

NAME is a file of tests/data/sizes, or the path of one; SIZES are SYMBOL=N with commas between. The
static one is a graph of these numbers alone. The dynamic one is made as for a caller whose sizes
vary: by the pattern of a representative size, with kernels and library calls that other sizes
share.
"""

import dataclasses
import pathlib

FOLDER = pathlib.Path(__file__).resolve().parents[2] / "tests/data/sizes"
KINDS = ("static", "dynamic")


@dataclasses.dataclass(frozen=True)
class SizedGraph:
    path: pathlib.Path
    sizes: dict  # by symbol
    dynamic: bool


def knows(name):
    kind, colon, rest = name.partition(":")
    return bool(colon) and kind in KINDS and "@" in rest


def parse(name):
    """Of a name that this file knows. ValueError: no such graph, or a size is no number."""
    kind, _, rest = name.partition(":")
    graph, _, sizes = rest.rpartition("@")
    path = pathlib.Path(graph)
    if not path.suffix:
        path = FOLDER / f"{graph}.bwd.pb"
    if not path.exists():
        raise ValueError(f"{name}: there is no {path}")
    bound = {}
    for size in sizes.split(","):
        symbol, equals, number = size.partition("=")
        if not (equals and symbol and number.isdecimal()):
            raise ValueError(f"{name}: {size!r} is not SYMBOL=N")
        bound[symbol] = int(number)
    return SizedGraph(path, bound, kind == "dynamic")
