"""Attention that drops out: the backward draws the forward's mask again from its seed and offset."""


import pytest
import single_op
import torch
from built_library import LIBRARY, needs_library
from measure import ours
from retrograd.atomic_file import write_atomically
from retrograd.export import captured_backwards
from retrograd.translate import translate
from test_rows import attention
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.nn.functional import scaled_dot_product_attention

on_a_gpu = pytest.mark.skipif(
    not (torch.cuda.is_available() and LIBRARY.exists()),
    reason=f"needs a GPU that PyTorch sees, and {LIBRARY}",
)


def written(graph, path):
    write_atomically(path, graph.SerializeToString())
    return path


def saved_by(variant):
    """A graph of attention alone, as if a forward of cuDNN's, or by the attribute another's, with
    dropout 0.25 had saved its operands."""
    tensors, lse, results = attention(4, 4, dtype=torch.bfloat16)
    rest = (torch.tensor(5), torch.tensor(7), None, None, None, 7, 7, 0.25, True)
    graph, *_ = single_op.translate_op(
        "aten._scaled_dot_product_cudnn_attention_backward.default",
        (*tensors, lse[..., None], *rest), {}, results,
    )  # fmt: skip
    variant_of(graph).s = variant
    return graph


def attention_of(graph):
    (node,) = [n for n in graph.nodes if n.op == "attention_backward"]
    return node


def variant_of(graph):
    (attribute,) = [a for a in attention_of(graph).attrs if a.name == "variant"]
    return attribute


@needs_library
@pytest.mark.parametrize("variant", ["cudnn", "flash", "efficient"])
def test_known_random_numbers_are_drawn_by_the_host_too(tmp_path, variant):
    ours.Backward(LIBRARY, written(saved_by(variant), tmp_path / "known.bwd.pb"), "host").close()


@needs_library
def test_flash_attentions_state_is_a_seed_and_an_offset(tmp_path):
    """Its backward gives on the host what one with both as scalars gives."""
    tensors, lse, results = attention(4, 4, dtype=torch.bfloat16)
    state, unused = torch.tensor([5, 64], dtype=torch.uint64), torch.empty(0, dtype=torch.uint64)
    graph, inputs, _ = single_op.translate_op(
        "aten._scaled_dot_product_flash_attention_backward.default",
        (*tensors, lse, None, None, 7, 7, 0.25, True, state, unused), {}, results,
    )  # fmt: skip
    apart = saved_by("flash")
    made = []
    for name, which, given in [
        ("state", graph, list(inputs.values())),
        ("scalars", apart, [*tensors, lse[..., None], torch.tensor(5), torch.tensor(64)]),
    ]:
        room = [torch.full_like(t, float("nan")) for t in results]
        with ours.Backward(LIBRARY, written(which, tmp_path / f"{name}.bwd.pb"), "host") as backward:
            backward.bind(given, room)
            backward.run()
        made.append(room)
    assert all(torch.equal(a, b) for a, b in zip(*made, strict=True))
    assert all(torch.isfinite(t).all() for t in made[0])


@needs_library
def test_unknown_random_numbers_are_refused_with_what_to_do(tmp_path):
    path = written(saved_by("math"), tmp_path / "math.bwd.pb")
    with pytest.raises(ours.Refused, match='"math".*torch.nn.attention.sdpa_kernel'):
        ours.Backward(LIBRARY, path, "host")


def captured(
    shape, kv_heads, p, causal, bias=None, backend=SDPBackend.CUDNN_ATTENTION, dtype=torch.bfloat16
):
    """The backward of one attention on a GPU, with what its forward saved and what PyTorch's own
    backward gives for that. A bias that requires a gradient is the last of its inputs."""
    torch.manual_seed(11)
    batch, heads, length, width = shape
    like = {"device": "cuda", "dtype": dtype, "requires_grad": True}
    # [batch, length, heads, width] in memory, as models have it.
    q, k, v = (torch.randn(batch, length, n, width, **like) for n in (heads, kv_heads, kv_heads))
    weights = torch.randn(batch, heads, length, width, device="cuda", dtype=dtype)
    leaves = (q, k, v, bias) if bias is not None and bias.requires_grad else (q, k, v)

    def loss(q, k, v, bias=bias):
        o = scaled_dot_product_attention(
            q.transpose(1, 2), k.transpose(1, 2), v.transpose(1, 2), attn_mask=bias, dropout_p=p,
            is_causal=causal, enable_gqa=heads != kv_heads,
        )  # fmt: skip
        return (o.float() * weights.float()).sum()

    with sdpa_kernel(backend):
        (result,) = captured_backwards(loss, leaves, keep_on_device=True)
    graph, constants = translate(result, "dropout")
    # Efficient attention keeps its seed and offset in the host's memory.
    inputs = [i.recorded.cuda() for i in result.inputs]
    return result, graph, inputs + [t.cuda() for t in constants.values()]


def gradients(path, result, inputs, **options):
    with ours.Backward(LIBRARY, path, "cuda", **options) as backward:
        room = ours.room_for(result.outputs, torch.device("cuda"))
        made = [gradient for gradient in room if gradient is not None]
        for gradient in made:  # what is not written shows
            gradient.fill_(float("nan"))
        backward.bind(inputs, room)
        backward.run()
        torch.cuda.synchronize()
        return made


def pytorchs(result):
    return [o.recorded for o in result.outputs if o.recorded is not None]


def difference(mine, theirs):
    """The greatest |mine - theirs| / |theirs| of the gradients; not a number if one of theirs is."""
    pairs = [(a.double(), b.double()) for a, b in zip(mine, theirs, strict=True)]
    return float(torch.stack([(a - b).norm() / b.norm() for a, b in pairs]).max())


CASES = {
    "causal": ((2, 4, 512, 64), 4, 0.1, True),
    "every key": ((2, 4, 256, 64), 4, 0.5, False),
    "heads of 128": ((2, 4, 256, 128), 4, 0.1, True),
    "a length that no tile divides": ((1, 3, 200, 64), 3, 0.5, True),
    "fewer heads of keys": ((2, 8, 256, 64), 2, 0.1, True),
    "fewer heads of keys, every key": ((1, 8, 384, 128), 4, 0.5, False),
}


@on_a_gpu
@pytest.mark.parametrize("case", CASES)
def test_gradients_are_pytorchs_with_the_mask_that_the_forward_drew(case, tmp_path):
    result, graph, inputs = captured(*CASES[case])
    node = attention_of(graph)
    attrs = {a.name: a for a in node.attrs}
    assert (attrs["variant"].s, attrs["dropout_p"].f) == ("cudnn", CASES[case][2])
    path = written(graph, tmp_path / "dropout.bwd.pb")
    theirs = pytorchs(result)
    # The second time with the plan from the cache.
    for deterministic in (True, True, False):
        options = {"deterministic": deterministic, "cache_dir": str(tmp_path / "cache")}
        # Both are bf16 results of the same sums, perhaps in another order.
        assert difference(gradients(path, result, inputs, **options), theirs) < 1e-2
    # Another seed, or offset, is another mask.
    for operand in node.operands[-2:]:
        place = [i for i, n in enumerate(graph.nodes) if n.op == "input"].index(operand.node)
        others = list(inputs)
        others[place] = inputs[place] + 1024
        assert difference(gradients(path, result, others, **options), theirs) > 0.1


@on_a_gpu
def test_dropout_and_a_bias_go_together(tmp_path):
    bias = torch.randn(2, 1, 256, 256, device="cuda", dtype=torch.bfloat16)
    result, graph, inputs = captured((2, 4, 256, 64), 4, 0.25, False, bias)
    assert len(attention_of(graph).operands) == 9
    mine = gradients(written(graph, tmp_path / "bias.bwd.pb"), result, inputs)
    assert difference(mine, pytorchs(result)) < 1e-2


def drawn_by(variant, q, k, v, do, p, causal):
    """((O, log-sum-exp, seed, offset), (dQ, dK, dV)) of one of PyTorch's implementations."""
    aten = torch.ops.aten
    if variant == "flash":
        o, lse, *sizes, state, unused, _ = aten._scaled_dot_product_flash_attention(
            q, k, v, p, causal, False
        )
        rest = (*sizes, p, causal, state, unused)
        made = aten._scaled_dot_product_flash_attention_backward(do, q, k, v, o, lse, *rest)
        seed, offset = state.view(torch.int64).clone()
    else:
        o, lse, seed, offset = aten._scaled_dot_product_efficient_attention(
            q, k, v, None, True, p, causal
        )
        rest = (seed, offset, p, [True, True, True, False], causal)
        made = aten._scaled_dot_product_efficient_attention_backward(
            do, q, k, v, None, o, lse, *rest
        )
    return (o, lse[..., : q.shape[2]].contiguous(), seed, offset), made[:3]


@on_a_gpu
@pytest.mark.parametrize("shape", [(2, 4, 256, 64), (1, 3, 200, 128), (2, 2, 72, 40)])
@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("variant", ["flash", "efficient"])
def test_masks_of_pytorchs_other_implementations_are_drawn_again(variant, causal, shape, tmp_path):
    torch.manual_seed(12)
    q, k, v, do = (torch.randn(shape, device="cuda", dtype=torch.bfloat16) for _ in range(4))
    (o, lse, seed, offset), theirs = drawn_by(variant, q, k, v, do, 0.2, causal)
    inputs = [do, q, k, v, o.contiguous(), lse[..., None], seed.cuda(), offset.cuda()]
    rest = (None, None, None, shape[2], shape[2], 0.2, causal)
    graph, *_ = single_op.translate_op(
        "aten._scaled_dot_product_cudnn_attention_backward.default",
        (*(t.cpu() for t in inputs), *rest), {}, tuple(t.cpu().contiguous() for t in theirs),
    )  # fmt: skip
    variant_of(graph).s = variant
    path = written(graph, tmp_path / "other.bwd.pb")
    mine = [torch.full_like(t, float("nan"), memory_format=torch.contiguous_format) for t in theirs]
    with ours.Backward(LIBRARY, path, "cuda") as backward:
        backward.bind(inputs, mine)
        backward.run()
        torch.cuda.synchronize()
    assert difference(mine, theirs) < 1e-2
