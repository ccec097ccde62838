"""What export_backward writes, checked against PyTorch's eager autograd; what it refuses."""

import inspect
import re

import conftest
import examples
import interpreter
import pytest
import retrograd
import torch
import zoo
from retrograd import bundle, dtypes, schema
from torch import nn

OPS = re.findall(r"^RG_OP\((\w+)", (conftest.ROOT / "graph/ir/ops.def").read_text(), re.MULTILINE)
MODELS = pytest.mark.parametrize("name", examples.NAMES)

# fp32 sums in another order: a few hundred roundings of 6e-8.
TOLERANCE = 1e-5
# bf16 keeps 8 bits: 4e-3 a rounding, a few of which add up along a gradient.
BF16_TOLERANCE = 2e-2


def nodes_of(graph, op):
    return [n for n in graph.nodes if n.op == op]


# --- what every graph must be --------------------------------------------------------------------
@MODELS
def test_a_graph_is_well_formed(exported, name):
    graph = schema.load(exported(name).path)
    assert graph.schema_major == 1
    assert graph.name == name
    assert graph.numerics.framework == f"torch {torch.__version__.split('+')[0]}"
    for i, node in enumerate(graph.nodes):
        assert node.id == i
        assert node.op in OPS
        assert node.results, f"node {i} has no result"
        for operand in node.operands:
            assert operand.node < i, f"node {i} reads node {operand.node}, which comes later"
            assert operand.result < len(graph.nodes[operand.node].results)
        for result in node.results:
            dtypes.torch_dtype(result.dtype)
        names = [a.name for a in node.attrs]
        assert names == sorted(set(names))
        assert (node.op == "input") == node.HasField("input")
        assert node.origin <= len(graph.origins)


@MODELS
def test_constants_are_shared(exported, name):
    graph = schema.load(exported(name).path)
    fulls = [n.SerializeToString(deterministic=True) for n in map(_bare, nodes_of(graph, "full"))]
    assert len(fulls) == len(set(fulls))


def _bare(node):
    """The node without what tells equal ones apart."""
    copy = type(node)()
    copy.CopyFrom(node)
    copy.id = copy.origin = 0
    return copy


@MODELS
def test_nodes_carry_their_origins(exported, name):
    graph = schema.load(exported(name).path)
    nodes = [n for n in graph.nodes if n.op != "input"]
    origins = [graph.origins[n.origin - 1] for n in nodes if n.origin]
    assert len(origins) >= 0.9 * len(nodes)
    assert sum(bool(re.fullmatch(r"[\w.]+\.py:\d+", o.source)) for o in origins) >= 0.9 * len(nodes)
    assert all(re.fullmatch(r"(aten|prims)\.\w+|getitem", o.op) for o in origins), {
        o.op for o in origins
    }
    assert any(o.recomputed for o in origins) or name == "mlp"
    for own in ("export.py", "capture.py"):
        assert not any(o.source.startswith(own) for o in origins)
    instances = {o.instance for o in graph.origins}
    assert instances == set(range(len(instances)))


@MODELS
def test_display_strings_are_short_and_printable(exported, name):
    graph = schema.load(exported(name).path)
    strings = [graph.name, *(o.name for o in graph.outputs)]
    strings += [n.input.name for n in nodes_of(graph, "input")]
    strings += [s for o in graph.origins for s in (o.op, o.module_path, o.source)]
    for s in strings:
        assert len(s.encode()) <= 200
        assert s.isprintable()
        assert "/" not in s, "a path of the exporting machine"


@MODELS
def test_inputs_are_named_and_of_a_kind(exported, name):
    model, args, kwargs = examples.make(name)
    graph = schema.load(exported(name).path)
    inputs = [n.input for n in nodes_of(graph, "input")]
    names = [i.name for i in inputs]
    assert len(set(names)) == len(names)
    assert [i.name for i in inputs if i.kind == schema.TANGENT] == ["tangents_1"]
    known = {n for n, _ in (*model.named_parameters(), *model.named_buffers())}
    assert {i.name for i in inputs if i.kind == schema.PARAMETER} <= known
    assert all(i.alignment in (0, 16) for i in inputs)
    assert any(i.donated for i in inputs)


# --- gradients -----------------------------------------------------------------------------------
@MODELS
def test_recorded_gradients_are_those_of_eager_pytorch(exported, name):
    example = exported(name)
    graph = schema.load(example.path)
    _, gradients = bundle.read(example.bundle)
    present = {i: o.name for i, o in enumerate(graph.outputs) if not o.absent}
    assert set(present.values()) == set(example.gradients)
    reference = {i: example.gradients[n] for i, n in present.items()}
    assert set(gradients) == set(reference)
    assert max(interpreter.errors(gradients, reference).values()) <= TOLERANCE


@MODELS
def test_the_graph_computes_the_recorded_gradients(exported, name):
    example = exported(name)
    _, outputs, gradients = interpreter.evaluate_file(example.path, example.bundle)
    assert max(interpreter.errors(outputs, gradients).values()) <= TOLERANCE


@pytest.mark.parametrize("wrong", [("sub", "add"), ("add", "sub"), ("neg", "abs")])
def test_the_comparison_notices_a_wrong_op(exported, wrong):
    example = exported("llama_tiny")
    graph = schema.load(example.path)
    inputs, gradients = bundle.read(example.bundle)
    old, new = wrong
    node = nodes_of(graph, old)[-1]
    node.op = new
    outputs = interpreter.evaluate(graph, inputs)
    assert not max(interpreter.errors(outputs, gradients).values()) <= TOLERANCE


@MODELS
def test_in_double_the_graph_stays_close(exported, name):
    example = exported(name)
    _, outputs, gradients = interpreter.evaluate_file(example.path, example.bundle, double=True)
    assert max(interpreter.errors(outputs, gradients).values()) <= TOLERANCE


@pytest.mark.parametrize("name", zoo.TINY)
def test_under_bf16_autocast_gradients_agree_to_a_few_roundings(tmp_path, name):
    with torch.autocast("cpu", dtype=torch.bfloat16):
        example = examples.export(name, tmp_path)
    graph, outputs, gradients = interpreter.evaluate_file(example.path, example.bundle)
    assert any(dtypes.torch_dtype(n.results[0].dtype) == torch.bfloat16 for n in graph.nodes)
    assert max(interpreter.errors(outputs, gradients).values()) <= BF16_TOLERANCE


COMPOSITES = {
    "golf_tiny": {"relu_backward", "tanh_backward", "log_softmax_backward"},
    "bert_tiny": {"gelu_backward", "layer_norm_backward", "log_softmax_backward"},
    "llama_tiny": {"silu_backward", "log_softmax_backward"},
    "many_ops": {"gelu_backward", "gelu_tanh_backward", "silu_backward", "relu_backward",
                 "tanh_backward", "sigmoid_backward", "softmax_backward", "log_softmax_backward",
                 "layer_norm_backward"},
}  # fmt: skip


@pytest.mark.parametrize("name", COMPOSITES)
def test_whole_composites_stay_one_op_and_compute_the_same(tmp_path, name):
    example = examples.export(name, tmp_path, composites="whole")
    graph, outputs, gradients = interpreter.evaluate_file(example.path, example.bundle)
    ops = {n.op for n in graph.nodes}
    whole = {op for op in ops if op.endswith("_backward")} - {"attention_backward"}
    assert whole == COMPOSITES[name]
    assert max(interpreter.errors(outputs, gradients).values()) <= TOLERANCE


def test_attention_keeps_its_variant_and_its_grouped_heads(exported):
    graph = schema.load(exported("golf_tiny").path)
    attention = nodes_of(graph, "attention_backward")
    assert len(attention) == 4
    for node in attention:
        attrs = interpreter.attributes(node)
        assert attrs == {"causal": 1, "dropout_p": 0.0, "scale": 0.25, "variant": "flash_cpu"}
        do, q, k, v, o, lse = (
            list(graph.nodes[o.node].results[o.result].dims) for o in node.operands
        )
        assert do == q == o == [1, 4, 64, 16]
        assert k == v == [1, 2, 64, 16]
        assert lse == [1, 4, 64]


def test_an_attention_bias_is_an_operand_and_a_mask_becomes_one(tmp_path):
    q = torch.randn(2, 4, 6, 8, requires_grad=True)
    bias, mask = torch.randn(2, 1, 6, 6), torch.ones(6, 6).tril().bool()

    def loss(q, bias, mask):
        attend = torch.nn.functional.scaled_dot_product_attention
        y = attend(q, 2 * q, q.tanh(), attn_mask=bias)
        return (y + attend(q.sin(), q, q, attn_mask=mask, scale=0.7)).square().sum()

    (path,) = retrograd.export_backward(loss, (q, bias, mask), {}, tmp_path / "bias", bundle=True)
    graph, outputs, gradients = interpreter.evaluate_file(path, tmp_path / "bias.safetensors")
    assert [len(n.operands) for n in nodes_of(graph, "attention_backward")] == [7, 7]
    assert max(interpreter.errors(outputs, gradients).values()) <= TOLERANCE


# --- strides and bundles -------------------------------------------------------------------------
@pytest.mark.parametrize(
    "parts, strides",
    [
        (lambda x, y: torch.stack((x, y), -1), []),
        (lambda x, y: torch.stack((x.t(), y.t()), -1), [1, 4]),
        (lambda x, y: torch.cat((x, y), 1), []),
    ],
    ids=["row_major", "transposed", "columns"],
)
def test_results_that_are_parts_of_a_tensor_have_no_gaps(tmp_path, parts, strides):
    x, y = (torch.randn(4, 6, requires_grad=True) for _ in range(2))
    (path,) = retrograd.export_backward(
        lambda x, y: parts(x, y).square().sum(), (x, y), {}, tmp_path / "parts"
    )
    assert [list(o.strides) for o in schema.load(path).outputs] == [strides, strides]


def test_strides_are_recorded_and_storage_is_not_copied_dense(tmp_path):
    base = torch.randn(6, 40)
    x = base[:, 3:35:2]  # strides (40, 2)
    row = torch.randn(16).expand(6, 16)  # strides (0, 1)
    weight = nn.Parameter(torch.randn(6, 16))

    def loss(x, row):
        return (weight * x * row).sum()

    (path,) = retrograd.export_backward(loss, (x, row), {}, tmp_path / "strided", bundle=True)
    graph, outputs, gradients = interpreter.evaluate_file(path, tmp_path / "strided.safetensors")
    inputs = {n.input.name: n for n in nodes_of(graph, "input")}
    assert list(inputs["x"].input.strides) == [40, 2]
    assert list(inputs["row"].input.strides) == [0, 1]
    spans, _ = bundle.read(tmp_path / "strided.safetensors")
    assert spans[inputs["x"].id].numel() == 1 + 5 * 40 + 15 * 2
    assert spans[inputs["row"].id].numel() == 16
    assert max(interpreter.errors(outputs, gradients).values()) <= TOLERANCE


@pytest.mark.parametrize("extents", [(300,), (3, 300)])
def test_a_forward_with_a_large_identity_matrix_runs_op_by_op(tmp_path, extents):
    x = torch.randn(300, requires_grad=True)
    loss = lambda x: ((x - torch.eye(*extents)) ** 2).sum()  # noqa: E731
    (path,) = retrograd.export_backward(loss, (x,), {}, tmp_path / "eye", bundle=True)
    _, outputs, gradients = interpreter.evaluate_file(path, tmp_path / "eye.safetensors")
    assert max(interpreter.errors(outputs, gradients).values()) <= TOLERANCE


def test_alignment_is_claimed_only_where_the_address_has_it(tmp_path):
    store = torch.randn(65)
    weight = nn.Parameter(torch.randn(64))
    loss = lambda even, odd: (weight * even * odd).sum()  # noqa: E731
    arguments = (store[:64], store[1:])
    (path,) = retrograd.export_backward(loss, arguments, {}, tmp_path / "odd")
    inputs = {n.input.name: n.input for n in nodes_of(schema.load(path), "input")}
    assert (inputs["even"].alignment, inputs["odd"].alignment) == (16, 0)


def test_writing_leaves_no_other_file(tmp_path):
    examples.export("mlp", tmp_path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["mlp.bwd.pb", "mlp.safetensors"]


def test_an_export_is_reproducible(tmp_path):
    (tmp_path / "again").mkdir()
    first, second = examples.export("mlp", tmp_path), examples.export("mlp", tmp_path / "again")
    assert first.path.read_bytes() == second.path.read_bytes()
    assert first.bundle.read_bytes() == second.bundle.read_bytes()


# --- other ways to call it -----------------------------------------------------------------------
def test_without_a_run_the_graph_is_the_same(tmp_path, exported):
    model, args, kwargs = examples.make("llama_tiny")
    (path,) = retrograd.export_backward(model, args, kwargs, tmp_path / "llama_tiny", run=False)
    ran, captured = schema.load(exported("llama_tiny").path), schema.load(path)
    assert [n.op for n in captured.nodes] == [n.op for n in ran.nodes]
    assert [list(n.results) for n in captured.nodes] == [list(n.results) for n in ran.nodes]
    assert [o.name for o in captured.outputs] == [o.name for o in ran.outputs]
    assert all(p.grad is None for p in model.parameters())


def test_a_full_size_model_is_captured_without_running_it(tmp_path):
    model, args, kwargs = zoo.make("golf_plain_b48", "cpu")
    with torch.autocast("cpu", dtype=torch.bfloat16):
        (path,) = retrograd.export_backward(model, args, kwargs, tmp_path / "golf", run=False)
    graph = schema.load(path)
    assert len(nodes_of(graph, "attention_backward")) == 13
    assert len(graph.nodes) > 2000
    assert [48, 2048, 512] in [list(r.dims) for n in graph.nodes for r in n.results]


class Broken(nn.Module):
    def __init__(self):
        super().__init__()
        self.first, self.second = nn.Linear(8, 8), nn.Linear(8, 8)

    def forward(self, x):
        x = self.first(x).relu()
        torch._dynamo.graph_break()
        return self.second(x).square().mean()


def _broken():
    return Broken(), (torch.randn(4, 8),), {}


@pytest.mark.parametrize("make, graphs", [(_broken, 2), (examples.t5, 4)], ids=["broken", "t5"])
def test_graph_breaks_give_numbered_files(tmp_path, make, graphs):
    model, args, kwargs = make()
    paths = retrograd.export_backward(model, args, kwargs, tmp_path / "m.bwd.pb", bundle=True)
    assert [p.name for p in paths] == [f"m.{i}.bwd.pb" for i in range(graphs)]
    found = {}
    for path in paths:
        bundle_path = path.with_name(path.name.replace(".bwd.pb", ".safetensors"))
        graph, outputs, gradients = interpreter.evaluate_file(path, bundle_path)
        assert max(interpreter.errors(outputs, gradients).values()) <= TOLERANCE
        for output, gradient in zip(graph.outputs, outputs):
            if gradient is not None:  # a shared parameter gets a part from each graph
                found[output.name] = found.get(output.name, 0) + gradient
    for name, gradient in examples.eager_gradients(model, args, kwargs).items():
        torch.testing.assert_close(found[name], gradient, rtol=1e-4, atol=1e-6)


def test_a_graph_break_without_a_run_is_refused(tmp_path):
    with pytest.raises(retrograd.ExportError, match="run=True follows graph breaks"):
        retrograd.export_backward(Broken(), (torch.randn(4, 8),), {}, tmp_path / "x", run=False)


def test_a_loss_function_makes_the_scalar(tmp_path):
    model, x, target = nn.Linear(8, 3), torch.randn(5, 8), torch.randn(5, 3)
    (path,) = retrograd.export_backward(
        model, (x,), {}, tmp_path / "linear", loss_fn=lambda y: (y.sin() * target).mean()
    )
    graph = schema.load(path)
    assert {o.name for o in graph.outputs if not o.absent} == {"weight", "bias"}
    assert "target" in {n.input.name for n in nodes_of(graph, "input")}


def test_exporting_leaves_the_gradients_of_the_model_alone(tmp_path):
    model, x = nn.Linear(8, 1), torch.randn(1, 8)
    model.weight.grad = torch.full_like(model.weight, 3.0)
    retrograd.export_backward(model, (x,), {}, tmp_path / "linear")
    assert torch.equal(model.weight.grad, torch.full_like(model.weight, 3.0))
    assert model.bias.grad is None


def test_a_function_names_what_it_closes_over(tmp_path):
    model, scale = nn.Linear(8, 1), torch.ones(1, requires_grad=True)

    def loss(x):
        return (scale * model(x)).square().sum()

    (path,) = retrograd.export_backward(loss, (torch.randn(4, 8),), {}, tmp_path / "f")
    names = {o.name for o in schema.load(path).outputs if not o.absent}
    assert names == {"weight", "bias", "scale"}


# --- refusals ------------------------------------------------------------------------------------
class Bessel(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Linear(8, 8)

    def forward(self, x):
        return torch.special.i0(self.inner(x)).sum()


def test_an_op_without_a_row_is_named_with_its_node_and_line(tmp_path):
    lines, start = inspect.getsourcelines(Bessel)
    line = start + next(i for i, text in enumerate(lines) if "i0" in text)
    with pytest.raises(retrograd.ExportError) as refusal:
        retrograd.export_backward(Bessel(), (torch.randn(4, 8),), {}, tmp_path / "x")
    message = str(refusal.value)
    assert "aten.special_i1.default" in message
    assert "node special_i1" in message
    assert f"test_export.py:{line}" in message
    assert not list(tmp_path.iterdir())


REFUSED = {
    "a vector for a loss": (dict(fn=nn.Linear(8, 3)), "pass loss_fn"),
    "no gradient": (dict(fn=nn.Flatten(), loss_fn=torch.sum), "requires? a gradient"),
    "a bundle without a run": (dict(fn=nn.Linear(8, 1), run=False, bundle=True), "needs run=True"),
    "an unknown table": (dict(fn=nn.Linear(8, 1), loss_fn=torch.sum, composites="some"), "'some'"),
    "no path": (dict(fn=nn.Linear(8, 1), path=None), "needs a path"),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_wrong_call_is_refused_with_a_reason(tmp_path, case):
    options, reason = REFUSED[case]
    options = {"path": tmp_path / "x", **options}
    function = options.pop("fn")
    with pytest.raises(retrograd.ExportError, match=reason):
        retrograd.export_backward(function, (torch.randn(4, 8),), **options)
