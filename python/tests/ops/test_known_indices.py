"""Ops whose backward sums at indices that the shapes decide: exported and run, against PyTorch."""

import subprocess

import command
import pytest
import retrograd
import torch
from retrograd import schema
from torch.nn import functional as F


def _resize(size=None, **options):
    return lambda x: F.interpolate(x, size, **options)


IMAGE = (2, 3, 6, 5)
OPS = {  # name: (function, shape of its argument, whether its sums become gathers)
    "bilinear": (_resize(scale_factor=2, mode="bilinear"), IMAGE, True),
    "bilinear_corners": (_resize((11, 9), mode="bilinear", align_corners=True), IMAGE, None),
    "bilinear_1.5": (_resize(scale_factor=1.5, mode="bilinear"), (2, 3, 6, 8), True),
    "bilinear_down": (_resize(scale_factor=0.5, mode="bilinear"), (2, 3, 8, 6), True),
    "bicubic": (_resize(scale_factor=2, mode="bicubic"), IMAGE, True),
    "trilinear": (_resize(scale_factor=2, mode="trilinear"), (1, 2, 3, 4, 3), None),
    "nearest": (_resize(scale_factor=2, mode="nearest"), IMAGE, True),
    "nearest_1.5": (_resize(scale_factor=1.5, mode="nearest"), (2, 3, 6, 8), True),
    "average": (lambda x: F.adaptive_avg_pool2d(x, (3, 4)), IMAGE, None),
    "unfold": (lambda x: F.unfold(x, 3), IMAGE, True),
    "fold": (lambda x: F.fold(x, (6, 5), 3), (2, 27, 12), None),
    "windows": (lambda x: x.unfold(1, 4, 2), (3, 12), None),
    "strided_index": (lambda x: x[:, torch.arange(11)[::2]], (3, 11), True),
    "two_indices": (lambda x: x[:, torch.arange(5)[:, None], torch.arange(3)], (2, 7, 4), True),
    "backward_index": (lambda x: x[4 - torch.arange(5)], (7, 4), True),
    "distances": (lambda x: x[torch.arange(5)[:, None] - torch.arange(5) + 4], (9, 4), True),
    "roll": (lambda x: torch.roll(x, 2, 1), (3, 7), None),
    "circular": (lambda x: F.pad(x, (2, 1, 1, 2), mode="circular"), IMAGE, None),
    "reflect": (lambda x: F.pad(x, (2, 1, 1, 2), mode="reflect"), IMAGE, None),
}


def _export(name, folder):
    function, shape, _ = OPS[name]
    torch.manual_seed(0)
    weight = torch.randn(function(torch.zeros(shape)).shape)
    x = torch.randn(shape, requires_grad=True)
    (path,) = retrograd.export_backward(
        lambda x: (function(x) * weight).sum(), (x,), {}, folder / name, bundle=True
    )
    return path, folder / f"{name}.safetensors"


@command.needs_retrograd
@pytest.mark.parametrize("name", OPS)
@pytest.mark.parametrize("options", [(), ("--disable", "gathered_sums")], ids=["gathered", "sorted"])
def test_gradients_are_those_of_pytorch(tmp_path, name, options):
    path, bundle = _export(name, tmp_path)
    command.run_and_check(path, bundle, "--spec", "h200", *options)


def _sorts(path, *options):
    """How often the plan names a sort of indices."""
    plan = subprocess.run(
        [command.FOLDER / "fusion-explain", "plan", path, "--device", "h200", "--format", "json", *options],
        check=True, capture_output=True, text=True,
    ).stdout  # fmt: skip
    return plan.count("sort_indices")


@command.needs_retrograd
@pytest.mark.parametrize("name", [n for n, (_, _, gathers) in OPS.items() if gathers])
def test_no_kernel_sorts_an_index_that_is_known(tmp_path, name):
    path, _ = _export(name, tmp_path)
    assert _sorts(path) == 0
    assert _sorts(path, "--disable", "gathered_sums") > 0


def _rows(x, index):
    return index[:, None].expand(-1, x.shape[1])


LISTS = {  # name: a function of rows and of a list that is repeated along them
    "gather": lambda x, index: torch.gather(x, 0, _rows(x, index)),
    "scatter_add": lambda x, index: torch.zeros(9, 4).scatter_add(0, _rows(x, index[: len(x)]), x),
}


@command.needs_retrograd
@pytest.mark.parametrize("name", LISTS)
def test_a_list_repeated_along_rows_names_rows(tmp_path, name):
    """Neither the sum nor the lookup is of single elements: a list has as many indices as rows."""
    torch.manual_seed(0)
    x, index = torch.randn(7, 4, requires_grad=True), torch.randint(0, 7, (12,))
    weight = torch.randn(LISTS[name](x, index).shape)
    (path,) = retrograd.export_backward(
        lambda x, index: (LISTS[name](x, index) * weight).sum(), (x, index), {},
        tmp_path / name, bundle=True,
    )  # fmt: skip
    graph = schema.Graph.FromString(path.read_bytes())
    ops = [node for node in graph.nodes if node.op in ("index_add", "index_select", "gather")]
    assert [node.op for node in ops] == ["index_add" if name == "gather" else "index_select"]
    index = ops[0].operands[1]
    assert len(graph.nodes[index.node].results[index.result].dims) == 1
    command.run_and_check(path, tmp_path / f"{name}.safetensors", "--spec", "h200")


def test_the_backward_computes_saved_places_itself(tmp_path):
    path, _ = _export("bilinear", tmp_path)
    graph = schema.Graph.FromString(path.read_bytes())
    assert any(node.op == "iota" for node in graph.nodes)


@command.needs_retrograd
def test_the_backward_makes_zeros_that_the_forward_saves_itself(tmp_path):
    """Then the sum begins with zeros instead of being added to an input that is full of them."""
    torch.manual_seed(0)
    source, target = torch.randint(0, 9, (2, 30))
    x, weight = torch.randn(9, 4, requires_grad=True), torch.randn(9, 4)
    (path,) = retrograd.export_backward(
        lambda x, *ends: (torch.zeros_like(x).index_add(0, ends[1], x[ends[0]]) * weight).sum(),
        (x, source, target), {}, tmp_path / "messages", bundle=True,
    )  # fmt: skip
    graph = schema.Graph.FromString(path.read_bytes())
    (summed,) = [node for node in graph.nodes if node.op == "index_add"]
    assert graph.nodes[summed.operands[0].node].op == "full"
    command.run_and_check(path, tmp_path / "messages.safetensors", "--spec", "h200")
