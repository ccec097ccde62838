"""Exported graphs whose sizes vary: what they say, and what they are at other sizes."""

import re
import subprocess

import command
import pytest
import retrograd
import sized_models
import torch
from retrograd import native, schema
from retrograd.errors import ExportError
from torch import nn
from torch.nn import attention

GPT_SHAPES = {"ids": {0: "batch", 1: torch.export.Dim("length", max=1024)}}


@pytest.fixture(autouse=True)
def exact_attention():
    with attention.sdpa_kernel(attention.SDPBackend.MATH):
        yield


def _exported(model, x, path, **options):
    (written,) = retrograd.export_backward(model, (x,), path=path, **options)
    return native.Graph.load(written)


def _text(graph):
    """Without the names of saved values, which count what else a forward computes."""
    return re.sub(r'(?<=name=")(?!L_|[a-z_]+\.)[a-z_0-9]*', "", str(graph)).splitlines()[1:]


@pytest.mark.parametrize("run", (True, False))
def test_a_graph_at_other_sizes_is_the_export_at_these_sizes(run, tmp_path):
    model = sized_models.Gpt()
    graph = _exported(
        model, sized_models.ids(3, 17), tmp_path / "g", run=run, dynamic_shapes=GPT_SHAPES
    )
    assert [(s.name, s.hint, s.max) for s in graph.symbols] == [
        ("batch", 3, 2**63 - 1), ("length", 17, 1024),
    ]  # fmt: skip
    for size in ((3, 17), (5, 64), (7, 31), (3, 1024), (11, 128)):
        static = _exported(model, sized_models.ids(*size), tmp_path / "s", run=run)
        assert static.symbols == []
        assert _text(graph.bind(dict(zip(("batch", "length"), size)))) == _text(static), size


def test_images_of_any_size(tmp_path):
    model = sized_models.Cnn().double()
    shapes = {"x": {0: "n", 2: torch.export.Dim("h", min=5), 3: torch.export.Dim("w", min=5)}}
    graph = _exported(
        model, sized_models.images(3, 20, 36), tmp_path / "g", dynamic_shapes=shapes
    )
    for size in ((3, 20, 36), (5, 64, 32), (7, 31, 37)):
        static = _exported(model, sized_models.images(*size), tmp_path / "s")
        assert _text(graph.bind(dict(zip("nhw", size)))) == _text(static), size
    with pytest.raises(native.Failure, match="h=4 is none of its numbers: at least 5"):
        graph.bind({"n": 3, "h": 4, "w": 9})


@command.needs_retrograd
def test_the_tools_bind_sizes_and_say_at_which_they_stand(tmp_path):
    model = sized_models.Bert()
    (path,) = retrograd.export_backward(
        model, (sized_models.ids(3, 17),), path=tmp_path / "g", bundle=True,
        dynamic_shapes={"ids": {0: "batch", 1: "length"}},
    )  # fmt: skip

    def told(*arguments, status=0, tool=command.RETROGRAD):
        result = subprocess.run(
            [tool, *map(str, arguments)], check=False, capture_output=True, text=True, timeout=300
        )
        assert result.returncode == status, result.stdout + result.stderr
        return result.stdout + result.stderr

    explain = command.FOLDER / "fusion-explain"
    hints = "the hints of sizes batch=3, length=17; --bind takes others"
    assert f"planned at {hints}" in told("plan", path, tool=explain)
    assert f"stands at {hints}" in told("run", path, "--check")
    bound = ("--bind", "batch=2,length=31")
    assert "planned at sizes batch=2, length=31" in told("plan", path, *bound, tool=explain)
    told("run", path, *bound, "--random-inputs", 1)
    assert "f32[2,31,16]" in told("dump", path, *bound, "--stage", "graph")
    assert '"sizes": "sizes batch=2, length=31"' in told(
        "plan", path, *bound, "--format", "json", tool=explain
    )
    for wrong, why in (
        ("batch=2", "length is not bound: give each size a number"),
        ("batch=2,length=31,width=3", "no size is called 'width'; those of the graph"),
        ("batch=2,length", "'length' binds no size: write NAME=NUMBER,.."),
        ("batch=0,length=31", "batch=0 is none of its numbers: at least 2"),
        ("batch=2,length=99999999999999", "RG-G024"),
    ):
        assert f"--bind {wrong}: " in (told_ := told("dump", path, "--bind", wrong, status=1))
        assert why in told_
    assert "numbers alone and no sizes to bind" in told(
        "plan", "golf_tiny", "--bind", "s0=3", tool=explain, status=1
    )
    assert "batch (3; at least 2), length (17; " in told("check", path)
    told("check", path, *bound, "-o", tmp_path / "bound.bwd.pb")
    assert not schema.load(tmp_path / "bound.bwd.pb").HasField("sizes")
    told("check", path, "-o", tmp_path / "same.bwd.pb")
    assert native.Graph.load(tmp_path / "same.bwd.pb").symbols == native.Graph.load(path).symbols


def test_what_the_trace_took_for_granted_holds_for_every_binding(tmp_path):
    linear = nn.Linear(16, 4)

    def pairs(x):
        return linear(x.reshape(-1, 16)).square().mean()

    x = torch.randn(6, 8, requires_grad=True)
    graph = _exported(pairs, x, tmp_path / "g", dynamic_shapes={"x": {0: "n"}})
    assert [t.shape for t in graph.bind({"n": 10}).outputs if t.name == "x"] == [(10, 8)]
    with pytest.raises(native.Failure, match="RG_FAILED_PRECONDITION.*for a guard of the trace"):
        graph.bind({"n": 7})


def test_tensors_that_are_marked_give_sizes_of_their_names(tmp_path):
    x = torch.randn(6, 4)
    torch._dynamo.mark_dynamic(x, 0)
    linear = nn.Linear(4, 4)

    def loss(x):
        return linear(x).square().mean()

    graph = _exported(loss, x, tmp_path / "g")
    assert [s.name for s in graph.symbols] == ["x_0"]
    assert graph.bind({"x_0": 9}).inputs[0].shape[-2:] != graph.inputs[0].shape[-2:]


def test_arguments_are_left_as_they_were(tmp_path):
    x = sized_models.ids(3, 17)
    before = dict(x.__dict__)
    _exported(sized_models.Bert(), x, tmp_path / "g", dynamic_shapes={"ids": {1: "length"}})
    assert x.__dict__ == before


@pytest.mark.parametrize(
    "shapes, why",
    (
        ({"tokens": {0: "n"}}, "names tokens, which is no tensor among the arguments; those are ids"),
        ({"ids": {2: "n"}}, "ids has no dim 2, it has 2"),
        ({"ids": {0: 3}}, "dim 0 of ids is to be called 3; give a name"),
        ({"ids": {0: "a=b"}}, "give a name without commas, spaces and equals signs"),
        ({"ids": {0: "n", 1: "n"}}, "the size n is 3 and 17 in dynamic_shapes"),
    ),
)
def test_shapes_that_name_no_extent_are_refused(shapes, why, tmp_path):
    with pytest.raises(ExportError, match=re.escape(why)):
        _exported(sized_models.Bert(), sized_models.ids(3, 17), tmp_path / "g", dynamic_shapes=shapes)


def test_an_extent_that_the_model_fixes_is_refused(tmp_path):
    def fixed(x):
        w = torch.ones(4, 6, requires_grad=True)
        return (w @ x).sum() * x.new_zeros(x.shape[0], 1).expand(6, 1).sum()

    x = torch.randn(6, 2, requires_grad=True)
    with pytest.raises(ExportError, match="a size cannot vary"):
        _exported(fixed, x, tmp_path / "g", dynamic_shapes={"x": {0: "n"}})
