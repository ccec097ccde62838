"""Models with complex numbers: exported as pairs of real ones, with the gradients of PyTorch's."""

import interpreter
import pytest
import reference
import retrograd
import torch
from torch import nn

TOLERANCE = 1e-5  # of fp32 sums in another order


def checked(tmp_path, model, *args):
    """The exported graph, whose gradients, evaluated in double, are those that PyTorch recorded."""
    stem = str(tmp_path / "complex")
    (path,) = retrograd.export_backward(model, args, {}, stem, bundle=True)
    bundle = path.with_name("complex.safetensors")
    graph, outputs, recorded = reference.evaluate_file(path, bundle, tmp_path)
    assert outputs.keys() == recorded.keys() and outputs
    for number, gradient in recorded.items():
        scale = gradient.abs().max().item()
        assert (outputs[number] - gradient).abs().max().item() <= TOLERANCE * scale
    return graph


class Rotated(nn.Module):
    """Positions as angles of complex numbers, as Llama's own code has them."""

    def __init__(self):
        super().__init__()
        self.project = nn.Linear(16, 16, bias=False)
        angles = torch.outer(torch.arange(6.0), 0.5 ** torch.arange(8.0))
        self.register_buffer("turns", torch.polar(torch.ones_like(angles), angles))

    def forward(self, x):
        pairs = self.project(x).float().reshape(*x.shape[:-1], -1, 2)
        turned = torch.view_as_real(torch.view_as_complex(pairs) * self.turns).flatten(-2)
        return turned.type_as(x).square().mean() + turned[..., 1].sum()


@reference.needs_program
def test_rotary_positions_as_complex_numbers(tmp_path):
    graph = checked(tmp_path, Rotated(), torch.randn(3, 6, 16))
    assert [o.name for o in graph.outputs if not o.absent] == ["project.weight"]


class Filtered(nn.Module):
    """A complex parameter, read as it is and conjugated."""

    def __init__(self):
        super().__init__()
        self.filter = nn.Parameter(torch.randn(4, 3, dtype=torch.complex64))

    def forward(self, x):
        y = x * self.filter + 0.5j * self.filter.conj()
        return torch.view_as_real(y).pow(2).sum()


@reference.needs_program
def test_the_gradient_of_a_complex_parameter_is_one_of_pairs(tmp_path):
    graph = checked(tmp_path, Filtered(), torch.randn(4, 3, dtype=torch.complex64))
    (output,) = [o for o in graph.outputs if not o.absent]
    result = graph.nodes[output.value.node].results[output.value.result]
    assert output.name == "filter"
    assert list(interpreter.dims_of(result)) == [4, 3, 2]


class Transposed(nn.Module):
    """A saved input that lies otherwise than its shape says."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(5, 2))

    def forward(self, z):
        return torch.view_as_real(z.t() * torch.view_as_complex(self.weight)).cos().sum()


@reference.needs_program
def test_a_strided_complex_input(tmp_path):
    checked(tmp_path, Transposed(), torch.randn(5, 4, dtype=torch.complex64))


def test_complex_values_of_extents_that_vary_are_refused(tmp_path):
    batch = {"x": {0: torch.export.Dim("batch", min=2, max=8)}}
    with pytest.raises(retrograd.ExportError, match="complex values of a graph whose extents vary"):
        retrograd.export_backward(
            Rotated(), (torch.randn(3, 6, 16),), {}, str(tmp_path / "x"), dynamic_shapes=batch
        )
    assert not list(tmp_path.iterdir())


class Mixed(nn.Module):
    """Columns, means, products of matrices and numbers."""

    def __init__(self):
        super().__init__()
        self.weight = nn.Parameter(torch.randn(4, 6, dtype=torch.complex64))

    def forward(self, z):
        y = z @ self.weight[1:] * (2 - 1j) + self.weight[:, 2].mean(0) / 3
        y = torch.cat([y[:, 1:], self.weight[0, :1].conj().expand(5, 1)], 1)
        return torch.view_as_real(y.sum(0) * 0.5).square().sum()


@reference.needs_program
@pytest.mark.parametrize("conjugated", [False, True])
def test_parts_products_and_numbers(tmp_path, conjugated):
    z = torch.randn(5, 3, dtype=torch.complex64)
    checked(tmp_path, Mixed(), z.conj() if conjugated else z)


class Spectrum(nn.Module):
    def __init__(self):
        super().__init__()
        self.gain = nn.Parameter(torch.randn(8))

    def forward(self, x):
        return torch.fft.fft(x * self.gain).real.square().sum()


def test_a_transform_is_refused_by_name(tmp_path):
    with pytest.raises(retrograd.ExportError, match="fft"):
        retrograd.export_backward(Spectrum(), (torch.randn(4, 8),), {}, str(tmp_path / "x"))
    assert not list(tmp_path.iterdir())
