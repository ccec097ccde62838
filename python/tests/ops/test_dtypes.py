"""retrograd.dtypes: what constants hold exactly, and what pointwise kernels compute in."""

import math

import pytest

torch = pytest.importorskip("torch")

from retrograd import dtypes  # noqa: E402


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_sixteen_bits_are_computed_in_thirty_two(dtype):
    assert dtypes.compute_dtype(dtype) == torch.float32


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.int64, torch.bool])
def test_other_types_are_computed_in_themselves(dtype):
    assert dtypes.compute_dtype(dtype) == dtype


@pytest.mark.parametrize(
    "dtype, number, exact",
    [
        (torch.float16, 0.5, True),
        (torch.float16, 0.1, False),
        (torch.float16, 65536.0, False),
        (torch.bfloat16, 257.0, False),
        (torch.float32, 0.1, False),
        (torch.float32, 16777216.0, True),
        (torch.float64, 0.1, True),
        (torch.float32, math.inf, True),
        (torch.float32, math.nan, True),
        (torch.int64, 3, True),
    ],
)
def test_a_constant_is_exact_where_the_type_holds_it(dtype, number, exact):
    assert dtypes.represents(dtype, number) is exact
