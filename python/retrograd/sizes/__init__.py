"""Sizes that a graph leaves open: numbers that carry an expression of symbols beside their value."""

from retrograd.sizes.size import (  # noqa: F401
    Quotient,
    Size,
    as_float,
    identical,
    is_symbolic,
    key_of,
    number_of,
)
from retrograd.sizes.table import SizeTable  # noqa: F401
