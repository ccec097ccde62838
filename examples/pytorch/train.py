"""Trains a small model of PyTorch with the backend: one argument of torch.compile."""

import torch
from torch import nn

torch.manual_seed(0)
images, labels = torch.randn(512, 64), torch.randint(10, (512,))
model = nn.Sequential(nn.Linear(64, 128), nn.GELU(), nn.LayerNorm(128), nn.Linear(128, 10))
compiled = torch.compile(model, backend="retrograd")
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2)

for epoch in range(20):
    for x, y in zip(images.split(128), labels.split(128), strict=True):
        optimizer.zero_grad()
        loss = nn.functional.cross_entropy(compiled(x), y)
        loss.backward()
        optimizer.step()
    print(f"epoch {epoch + 1:2}: loss {loss.item():.4f}")
