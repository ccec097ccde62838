"""Gradients of pooling and ops on storage, row by row, against PyTorch's own."""

import itertools

import interpreter
import pytest
import reference
import retrograd
import single_op
import torch
from torch.nn import functional as F

POOLS = [  # kernel, stride, padding, dilation, ceil_mode
    ((3, 3), (2, 2), (1, 1), (1, 1), False),
    ((2, 2), (2, 2), (0, 0), (1, 1), False),
    ((3, 3), (1, 1), (1, 1), (1, 1), False),
    ((2, 3), (3, 2), (1, 0), (1, 1), False),
    ((2, 2), (3, 3), (0, 0), (1, 1), False),
    ((3, 3), (2, 2), (1, 1), (1, 1), True),
    ((3, 3), (3, 3), (0, 0), (1, 1), True),
    ((5, 3), (2, 1), (2, 1), (1, 1), False),
    ((3, 2), (2, 1), (1, 1), (2, 3), False),
    ((3, 3), (2, 3), (1, 0), (2, 2), True),
    ((1, 1), (2, 2), (0, 0), (1, 1), False),
]
EXTENTS = [(9, 8), (7, 11)]


def _close(outputs, expected):
    for got, want in zip(outputs.values(), expected, strict=True):
        torch.testing.assert_close(got, want, rtol=1e-12, atol=1e-12)


@reference.needs_program
@pytest.mark.parametrize("pool, extents", itertools.product(POOLS, EXTENTS), ids=str)
def test_a_maximum_gathers_from_the_windows_that_it_won(tmp_path, pool, extents):
    kernel, stride, padding, dilation, ceil_mode = pool
    torch.manual_seed(0)
    # Few values, so that windows hold their maximum twice.
    x = torch.randint(0, 4, (2, 3, *extents)).double().requires_grad_()
    y, index = F.max_pool2d(x, kernel, stride, padding, dilation, ceil_mode, True)
    dy = torch.randn_like(y)
    (dx,) = torch.autograd.grad(y, x, dy)
    arguments = (dy, x.detach(), kernel, stride, padding, dilation, ceil_mode, index)
    graph, inputs, expected = single_op.translate_op(
        "aten.max_pool2d_with_indices_backward.default", arguments, results=dx
    )
    _close(reference.evaluate(graph, inputs, tmp_path), expected)


@reference.needs_program
@pytest.mark.parametrize("pool", POOLS, ids=str)
def test_an_offset_in_a_window_names_its_pixel(tmp_path, pool):
    kernel, stride, padding, dilation, ceil_mode = pool
    torch.manual_seed(0)
    x = torch.randn(2, 3, 9, 8)
    _, offsets = torch.ops.prims._low_memory_max_pool_with_offsets(
        x, kernel, stride, padding, dilation, ceil_mode
    )
    arguments = (offsets, kernel, x.shape[2:], stride, padding, dilation)
    graph, inputs, expected = single_op.translate_op(
        "prims._low_memory_max_pool_offsets_to_indices.default", arguments
    )
    (indices,) = reference.evaluate(graph, inputs, tmp_path).values()
    assert torch.equal(indices.long(), expected[0])


@pytest.mark.parametrize("pool", POOLS, ids=str)
def test_a_captured_maximum_compares_the_offsets(tmp_path, pool):
    """The pair of both ops, as a capture has it, by the interpreter in the recorded types."""
    kernel, stride, padding, dilation, ceil_mode = pool
    torch.manual_seed(0)
    x = torch.randint(0, 4, (2, 3, 9, 8)).float().requires_grad_()

    def loss(x):
        y = F.max_pool2d(x, kernel, stride, padding, dilation, ceil_mode)
        return (y * torch.arange(y.numel()).reshape(y.shape)).sum()

    (path,) = retrograd.export_backward(loss, (x,), {}, tmp_path / "pool", bundle=True)
    graph, outputs, gradients = interpreter.evaluate_file(path, tmp_path / "pool.safetensors")
    x.grad = None
    loss(x).backward()
    (output,) = (o for o in outputs if o is not None)
    torch.testing.assert_close(output, x.grad, rtol=0, atol=0)
    (recorded,) = gradients.values()
    torch.testing.assert_close(output, recorded, rtol=0, atol=0)


AVERAGES = [  # kernel, stride, padding, ceil_mode, count_include_pad, divisor
    ((3, 3), (2, 2), (1, 1), False, True, None),
    ((3, 3), (2, 2), (1, 1), False, False, None),
    ((3, 2), (2, 3), (1, 1), True, True, None),
    ((3, 2), (2, 3), (1, 1), True, False, None),
    ((2, 2), (2, 2), (0, 0), False, True, None),
    ((5, 3), (1, 2), (2, 1), False, False, None),
    ((2, 2), (3, 3), (0, 0), True, True, 7),
]


@reference.needs_program
@pytest.mark.parametrize("pool, extents", itertools.product(AVERAGES, EXTENTS), ids=str)
def test_an_average_spreads_its_gradient_over_its_window(tmp_path, pool, extents):
    torch.manual_seed(0)
    x = torch.randn(2, 3, *extents, dtype=torch.float64, requires_grad=True)
    y = torch.ops.aten.avg_pool2d(x, *pool)
    dy = torch.randn_like(y)
    (dx,) = torch.autograd.grad(y, x, dy)
    arguments = (dy, x.detach(), *pool)
    graph, inputs, expected = single_op.translate_op(
        "aten.avg_pool2d_backward.default", arguments, results=dx
    )
    _close(reference.evaluate(graph, inputs, tmp_path), expected)


STRIDED = [  # x's shape and order of axes in memory, size, stride, offset
    ((2, 12), (0, 1), (2, 3, 4), (12, 4, 1), 0),
    ((2, 12), (0, 1), (2, 3, 4), (12, 1, 3), 0),
    ((2, 3, 4), (0, 2, 1), (24,), (1,), 0),
    ((2, 3, 4), (0, 2, 1), (2, 3, 4), (12, 4, 1), None),
    ((6,), (0,), (2, 3, 1, 1), (3, 1, 3, 3), 0),
    ((12,), (0,), (3, 2), (4, 2), 1),  # every other element
    ((12,), (0,), (3, 4), (1, 2), 0),  # windows that overlap
    ((12,), (0,), (2, 3), (0, 1), 5),
    ((2, 3, 4), (2, 0, 1), (3, 2), (5, 1), 4),
]


def _lying(shape, order):
    torch.manual_seed(0)
    dense = torch.randn([shape[a] for a in order], dtype=torch.float64)
    return dense.permute(sorted(range(len(order)), key=lambda a: order[a]))


@pytest.mark.parametrize("shape, order, size, stride, offset", STRIDED, ids=str)
def test_addresses_are_read_in_the_order_in_which_the_tensor_lies(
    shape, order, size, stride, offset
):
    x = _lying(shape, order)
    result = torch.as_strided(x, size, stride, offset).clone()
    single_op.check("aten.as_strided.default", (x, size, stride, offset), results=result)


def test_a_dense_view_of_storage_moves_no_element():
    x = torch.randn(2, 6)
    result = x.as_strided((2, 3, 2), (6, 2, 1))
    graph = single_op.check(
        "aten.as_strided.default", (x, (2, 3, 2), (6, 2, 1), 0), results=result.clone()
    )
    assert {n.op for n in graph.nodes} <= {"input", "reshape", "permute"}


@pytest.mark.parametrize(
    "shape, order, size, stride, offset", STRIDED[:5], ids=str
)
def test_a_scatter_to_all_addresses_is_the_source(shape, order, size, stride, offset):
    base = _lying(shape, order)
    src = torch.randn(size, dtype=torch.float64)
    single_op.check("aten.as_strided_scatter.default", (base, src, size, stride, offset))


@pytest.mark.parametrize(
    "op, x, arguments, reason",
    [
        ("as_strided", torch.randn(4, 8)[:, ::2], ((4,), (1,), 0), "leave gaps or overlap"),
        ("as_strided", torch.randn(4, 4)[1:], ((3,), (1,), 0), "another tensor"),
        ("as_strided_scatter", torch.zeros(4, 4)[1:], (torch.ones(3), (3,), (1,), 0), "another tensor"),
    ],
)
def test_addresses_that_are_not_the_tensors_own_are_refused(op, x, arguments, reason):
    with pytest.raises(retrograd.ExportError, match=reason):
        single_op.translate_op(f"aten.{op}.default", (x, *arguments))


def test_a_cumulative_sum_is_a_scan():
    x = torch.randn(3, 5, 2)
    assert "cumsum" in {n.op for n in single_op.check("aten.cumsum.default", (x, -2)).nodes}
    single_op.check("aten.cumsum.default", (torch.randint(0, 9, (4,), dtype=torch.int32), 0))
    single_op.check("aten.cumsum.default", (torch.tensor(2.0), 0))


def test_the_backward_of_a_cumulative_sum_is_exported(tmp_path):
    x = torch.randn(3, 5, requires_grad=True)
    loss = lambda x: x.cumsum(1).square().sum()  # noqa: E731
    (path,) = retrograd.export_backward(loss, (x,), {}, tmp_path / "scan", bundle=True)
    graph, outputs, gradients = interpreter.evaluate_file(path, tmp_path / "scan.safetensors")
    assert "cumsum" in {n.op for n in graph.nodes}
    assert max(interpreter.errors(outputs, gradients).values()) <= 1e-6
