"""What the backend would make of a model's backward, on two GPUs, before one trains with it.

    python3 explain.py [FILE.html]
"""

import sys

import retrograd
import torch
from torch import nn

layer = nn.TransformerEncoderLayer(64, 4, dim_feedforward=256, batch_first=True, dropout=0.0)
x = torch.randn(8, 32, 64)


def loss(y):
    return y.square().mean()


for gpu in ("h200", "mi300x"):
    explanation = retrograd.explain(layer, (x,), loss_fn=loss, spec=gpu)
    kernels = sum(plan.num_kernels for plan in explanation.backwards)
    print(f"{gpu}: {kernels} kernels and library calls, {explanation.predicted_us:.1f} us predicted")
print(explanation)
if len(sys.argv) > 1:
    explanation.save(sys.argv[1])  # a page to click through
