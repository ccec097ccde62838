"""Losses that hold derivatives, as forces are gradients of an energy: their backwards go through second
derivatives. Ways that PyTorch compiles give eager's gradients in double precision."""

import functools

import interpreter
import pytest
import retrograd
import torch
from retrograd.backend import backend
from torch import nn

FULL = {"require_full": True}


@pytest.fixture(autouse=True)
def traced_gradients():
    torch._dynamo.reset()
    with torch._dynamo.config.patch(trace_autograd_ops=True):
        yield


class Polynomials(nn.Module):
    """The energy of points [N, 3] by real spherical harmonics to degree 2 and a radial part, written as
    e3nn writes them."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(9, 5).double() / 3)
        self.last = nn.Parameter(torch.randn(5).double())

    def forward(self, points):
        length = points.square().sum(-1, keepdim=True).sqrt()
        x, y, z = (points / length).unbind(-1)
        harmonics = torch.stack(
            [torch.ones_like(x), x, y, z, 3**0.5 * x * z, 3**0.5 * x * y,
             y * y - 0.5 * (x * x + z * z), 3**0.5 * y * z, 3**0.5 / 2 * (z * z - x * x)], -1,
        )  # fmt: skip
        return (torch.tanh(harmonics @ self.weight) * torch.exp(-length) @ self.last).sum()


class Harmonics(nn.Module):
    """The same by e3nn itself, to degree 3."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(16, 5).double() / 3)
        self.last = nn.Parameter(torch.randn(5).double())

    def forward(self, points):
        from e3nn import o3

        harmonics = o3.spherical_harmonics([0, 1, 2, 3], points, normalize=True)
        return (torch.tanh(harmonics @ self.weight) @ self.last).sum()


def by_autograd(energy, points, forces):
    value = energy(points)
    (gradient,) = torch.autograd.grad(value, points, create_graph=True)
    return value.square() / 100 + (gradient + forces).square().mean()


def by_grad(energy, points, forces):
    gradient, value = torch.func.grad_and_value(energy)(points)
    return value.square() / 100 + (gradient + forces).square().mean()


def by_vjp(energy, points, forces):
    value, pull = torch.func.vjp(energy, points)
    (gradient,) = pull(torch.ones_like(value))
    return value.square() / 100 + (gradient + forces).square().mean()


def by_jvp(energy, points, forces):
    """Of the derivative along the forces."""
    value, along = torch.func.jvp(energy, (points,), (forces,))
    return value.square() / 100 + along.square()


def by_product(energy, points, forces):
    """Of a Hessian-vector product: third derivatives."""
    gradient, product = torch.func.jvp(torch.func.grad(energy), (points,), (forces,))
    return gradient.square().mean() + product.square().mean()


WAYS = (by_autograd, by_grad, by_vjp, by_jvp, by_product)


def _inputs(count=30):
    torch.manual_seed(count)
    return torch.randn(count, 3).double(), torch.randn(count, 3).double()


def _gradients(loss, energy, points, forces):
    """The loss, and the gradients of the points and of the parameters."""
    points = points.clone().requires_grad_()
    energy.zero_grad(set_to_none=True)
    value = loss(energy, points, forces)
    value.backward()
    return [value.detach(), points.grad, *(p.grad for p in energy.parameters())]


def _check(made, expected):
    for ours, theirs in zip(made, expected, strict=True):
        assert (ours - theirs).abs().max() <= 1e-10 * theirs.abs().max()


@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_a_compiled_loss_of_derivatives_has_eagers_gradients(way):
    energy, inputs = Polynomials(), _inputs()
    run = torch.compile(way, backend=backend, options=FULL, fullgraph=True)
    _check(_gradients(run, energy, *inputs), _gradients(way, energy, *inputs))


@pytest.mark.parametrize("way", (by_autograd, by_grad), ids=lambda way: way.__name__)
def test_forces_by_e3nns_spherical_harmonics(way):
    energy, inputs = Harmonics(), _inputs()
    run = torch.compile(way, backend=backend, options=FULL, fullgraph=True)
    _check(_gradients(run, energy, *inputs), _gradients(way, energy, *inputs))


def test_forces_of_any_number_of_points():
    energy = Polynomials()
    run = torch.compile(by_grad, backend=backend, options=FULL, fullgraph=True, dynamic=True)
    for count in (30, 17, 64):
        inputs = _inputs(count)
        _check(_gradients(run, energy, *inputs), _gradients(by_grad, energy, *inputs))


@pytest.mark.parametrize("run", (True, False))
@pytest.mark.parametrize("way", WAYS, ids=lambda way: way.__name__)
def test_an_exported_loss_of_derivatives(way, run, tmp_path):
    """export_backward has torch.autograd.grad traced whatever Dynamo's setting is."""
    energy, (points, forces) = Polynomials(), _inputs()
    points.requires_grad_()
    with torch._dynamo.config.patch(trace_autograd_ops=False):
        (path,) = retrograd.export_backward(
            functools.partial(way, energy), (points, forces), path=tmp_path / "g",
            bundle=True if run else None, run=run,
        )  # fmt: skip
    if run:
        _, outputs, expected = interpreter.evaluate_file(path, path.with_name("g.safetensors"))
        made = [outputs[i].flatten() for i in expected]
        _check(made, [gradient.flatten() for gradient in expected.values()])


def test_a_gradient_of_a_compiled_energy_is_not_differentiated_again():
    """PyTorch's refusal: the energy alone was compiled, and not the loss of its gradient."""
    energy, (points, forces) = Polynomials(), _inputs()
    run = torch.compile(energy, backend=backend, options=FULL)
    with pytest.raises(RuntimeError, match="does not currently support double backward"):
        by_autograd(run, points.requires_grad_(), forces).backward()
