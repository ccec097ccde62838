"""Rows of the table of ATen ops by theme. Importing this package registers all of them."""

from retrograd.rows import (  # noqa: F401
    attention,
    composite,
    convolution,
    distance,
    fp8,
    fp8_blocks,
    gamma,
    grid,
    grouped,
    index,
    math,
    pool,
    reduction,
    resample,
    rounding,
    scaled,
    scatter,
    strided,
    view,
    weight_norm,
)  # fmt: skip
