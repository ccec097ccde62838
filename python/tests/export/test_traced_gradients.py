"""The gradient of a cumulative product: what PyTorch computes, in few ops."""

import interpreter
import pytest
import retrograd
import torch
from retrograd import schema, traced_gradients

SEED = 20


def factors(shape, share_of_zeros):
    drawn = torch.rand(shape, dtype=torch.float64) + 0.5
    signs = torch.where(torch.rand(shape) < 0.5, -1.0, 1.0)
    return torch.where(torch.rand(shape) < share_of_zeros, 0.0, drawn * signs)


@pytest.mark.parametrize("dim", [0, 1, -1])
@pytest.mark.parametrize("zeros", [0.0, 0.1, 0.5, 1.0])
def test_zeros_or_not_the_gradient_is_pytorchs(zeros, dim):
    torch.manual_seed(SEED)
    for _ in range(20):
        x = factors((3, 7, 4), zeros).requires_grad_()
        products = x.cumprod(dim)
        given = torch.randn_like(products)
        (wanted,) = torch.autograd.grad(products, x, given)
        with torch.no_grad():
            found = traced_gradients._cumprod_backward(given, x, dim, products)
        assert torch.allclose(found, wanted, rtol=1e-10, atol=1e-12)


def test_a_captured_gradient_has_few_ops_and_the_right_values(tmp_path):
    torch.manual_seed(SEED)
    x = factors((4, 50), 0.05).requires_grad_()
    weight = torch.randn(4, 50, dtype=torch.float64)
    loss = lambda x: (x.cumprod(1) * weight).sum()  # noqa: E731
    (path,) = retrograd.export_backward(loss, (x,), {}, tmp_path / "product", bundle=True)
    assert len(schema.load(path).nodes) < 60
    _, outputs, gradients = interpreter.evaluate_file(path, tmp_path / "product.safetensors")
    assert max(interpreter.errors(outputs, gradients).values()) <= 1e-10


def test_a_gradient_of_the_gradient_is_pytorchs():
    torch.manual_seed(SEED)
    x = factors((3, 6), 0.2).requires_grad_()

    def second():
        (first,) = torch.autograd.grad(x.cumprod(1).sin().sum(), x, create_graph=True)
        return torch.autograd.grad(first.square().sum(), x)[0]

    wanted = second()
    with traced_gradients.in_few_ops():
        assert torch.equal(second(), wanted)


def test_outside_pytorchs_own_formula_is_back():
    op = torch.ops.aten.cumprod_backward.default
    before = dict(op.py_kernels)
    with pytest.raises(ZeroDivisionError), traced_gradients.in_few_ops():
        assert op.py_kernels != before
        raise ZeroDivisionError
    assert op.py_kernels == before
