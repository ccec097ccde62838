"""Attention with a learned bias: its gradient is that of the scores, summed over what it repeats."""

import pytest
import torch
from test_attention_dropout import (
    attention_of,
    captured,
    difference,
    gradients,
    on_a_gpu,
    pytorchs,
    written,
)
from torch.nn.attention import SDPBackend

# Shape of Q, that of the bias, dropout, dtype.
CASES = {
    "for each batch and head": ((2, 4, 256, 64), (2, 4, 256, 256), 0.0, torch.bfloat16),
    "for all batches": ((3, 4, 200, 64), (1, 4, 200, 200), 0.0, torch.bfloat16),
    "an odd length": ((2, 3, 197, 64), (1, 3, 197, 197), 0.0, torch.bfloat16),
    "heads of 128": ((2, 2, 130, 128), (2, 1, 130, 130), 0.0, torch.bfloat16),
    "windows of 49, heads of 32": ((6, 3, 49, 32), (6, 3, 49, 49), 0.0, torch.bfloat16),
    "fp32": ((2, 3, 100, 32), (1, 3, 100, 100), 0.0, torch.float32),
    "with dropout": ((2, 4, 256, 64), (1, 4, 256, 256), 0.3, torch.bfloat16),
}


@on_a_gpu
@pytest.mark.parametrize("case", CASES)
def test_the_gradient_of_a_learned_bias_is_pytorchs(case, tmp_path):
    shape, of_bias, p, dtype = CASES[case]
    bias = torch.randn(of_bias, device="cuda", dtype=dtype, requires_grad=True)
    result, graph, inputs = captured(
        shape, shape[1], p, False, bias, SDPBackend.EFFICIENT_ATTENTION, dtype
    )
    assert len(attention_of(graph).results) == 4
    theirs = pytorchs(result)
    assert len(theirs) == 4
    mine = gradients(written(graph, tmp_path / "bias.bwd.pb"), result, inputs)
    assert difference(mine, theirs) < (1e-2 if dtype == torch.bfloat16 else 1e-4)
