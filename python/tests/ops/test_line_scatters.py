"""Gradients of elements that are looked up line by line: exported and run, against PyTorch."""

import subprocess
import types

import command
import pytest
import retrograd
import torch
from retrograd import builder, distinct_indices, schema
from retrograd.rows import scatter
from torch.fx.experimental.proxy_tensor import make_fx

BATCH, LINES, EXTENT, COUNT = 3, 20, 300, 40


def _positions(*shape, extent=EXTENT):
    torch.manual_seed(1)
    return torch.randint(0, extent, shape)


LOOKUPS = {  # name: (function of x [BATCH, LINES, EXTENT], whether its gradient stays line by line)
    "each_line": (lambda x, i=_positions(BATCH, LINES, COUNT): torch.gather(x, -1, i), True),
    "shared": (
        lambda x, i=_positions(LINES, COUNT): x.gather(-1, i.expand(BATCH, LINES, COUNT)), True,
    ),
    "first_axis": (
        lambda x, i=_positions(COUNT, LINES, EXTENT, extent=BATCH): x.gather(0, i), True,
    ),
    "middle_axis": (
        lambda x, i=_positions(BATCH, COUNT, EXTENT, extent=LINES): x.gather(1, i), True,
    ),
    "along": (
        lambda x, i=_positions(BATCH, LINES, COUNT): torch.take_along_dim(x, i, dim=2), True,
    ),
    "sorted": (lambda x: x.sort(-1).values, True),
    "sorted_columns": (lambda x: x.sort(1).values, True),
    "rows_of_parts": (
        lambda x, i=_positions(BATCH, COUNT, 1, extent=LINES): x.gather(
            1, i.expand(BATCH, COUNT, EXTENT)
        ), False,
    ),
    "rows_of_all_parts": (
        lambda x, i=_positions(COUNT, 1, extent=LINES): x.gather(
            1, i.expand(BATCH, COUNT, EXTENT)
        ), False,
    ),
    "short_rows_of_parts": (
        lambda x, i=_positions(BATCH, COUNT, 1, extent=LINES): x[:, :, :7].gather(
            1, i.expand(BATCH, COUNT, 7)
        ), True,
    ),
    "fewer_lines": (lambda x, i=_positions(BATCH, 7, COUNT): torch.gather(x, -1, i), True),
    "one_long_line": (
        lambda x, i=_positions(1, 18000, extent=18000): x.reshape(1, 18000).gather(1, i), False,
    ),
}  # fmt: skip


def _export(name, folder, dtype=torch.float32):
    function, _ = LOOKUPS[name]
    torch.manual_seed(0)
    x = torch.randn(BATCH, LINES, EXTENT, dtype=dtype, requires_grad=True)
    weight = torch.randn(function(x).shape, dtype=dtype)
    (path,) = retrograd.export_backward(
        lambda x: (function(x) * weight).sum(), (x,), {}, folder / name, bundle=True
    )
    return path, folder / f"{name}.safetensors"


@command.needs_retrograd
@pytest.mark.parametrize("name", LOOKUPS)
@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16], ids=["fp32", "bf16"])
def test_gradients_are_those_of_pytorch(tmp_path, name, dtype):
    command.run_and_check(*_export(name, tmp_path, dtype), "--spec", "h200")


@command.needs_retrograd
@pytest.mark.parametrize("name", [name for name in LOOKUPS if LOOKUPS[name][1] is not None])
def test_nothing_is_sorted_where_lines_are_many(tmp_path, name):
    path, _ = _export(name, tmp_path)
    plan = subprocess.run(
        [command.RETROGRAD, "dump", path, "--spec", "h200", "--stage", "plan"],
        capture_output=True, text=True, check=True,
    ).stdout  # fmt: skip
    assert ("scatter_lines" in plan) is LOOKUPS[name][1]
    assert ("sort_indices" in plan) is not LOOKUPS[name][1]


SORTS = {  # name: function of x [BATCH, LINES, EXTENT]
    "sort": lambda x: x.sort(-1).values,
    "sort_of_an_axis": lambda x: x.sort(1, descending=True).values,
    "stable_sort": lambda x: torch.sort(x, dim=0, stable=True).values,
    "topk": lambda x: x.topk(40).values,
    "few_of_topk": lambda x: x.topk(3, dim=1).values,
}


@command.needs_retrograd
@pytest.mark.parametrize("name", SORTS)
def test_nothing_is_counted_where_a_sort_named_the_places(tmp_path, name):
    function = SORTS[name]
    x = torch.randn(BATCH, LINES, EXTENT, requires_grad=True)
    (path,) = retrograd.export_backward(
        lambda x: (function(x) ** 2).sum(), (x,), {}, tmp_path / name, bundle=True
    )
    command.run_and_check(path, tmp_path / f"{name}.safetensors", "--spec", "h200")
    text = path.with_suffix(".rgt")
    subprocess.run([command.RETROGRAD, "check", path, "-o", text], check=True, capture_output=True)
    assert text.read_text().count("scatter_lines") == 1


@pytest.mark.parametrize("axis, counts", [(0, 2), (1, 1)])
def test_what_a_sort_named_is_counted_along_another_axis(axis, counts):
    b = builder.Builder("put")
    saved = schema.InputInfo(name="index", kind=schema.SAVED)
    index = b.input(torch.int64, (20, 20), saved)
    src = b.input(torch.float32, (20, 20), schema.InputInfo(name="src", kind=schema.SAVED))
    b.distinct[index.node] = 1
    call = types.SimpleNamespace(b=b, shape=(20, 20))
    scatter.scatter_src(call, b.full(0, torch.float32, (20, 20)), axis, index, src)
    assert sum(node.op == "scatter_lines" for node in b.graph.nodes) == counts


def test_the_axis_of_a_sort_is_known_however_it_is_given():
    def sorts(x):
        return (
            x.sort(1).indices, x.sort(dim=-1, stable=True).indices, x.topk(2, dim=-2).indices,
            x.argsort(0), x.sort(1).values, x.argmax(1),
        )  # fmt: skip

    graph = make_fx(sorts)(torch.randn(3, 4, 5)).graph
    axes = distinct_indices.axes_of(graph)
    (output,) = [n for n in graph.nodes if n.op == "output"]
    assert [axes.get(n.name) for n in output.args[0]] == [1, 2, 1, 0, None, None]
