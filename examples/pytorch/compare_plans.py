"""What fusing wins: the plan of a model's backward beside the one that fuses nothing."""

import torch
from retrograd import native
from retrograd.export import captured_backwards
from retrograd.translate import translate
from torch import nn

model = nn.Sequential(nn.Linear(256, 512), nn.GELU(), nn.LayerNorm(512), nn.Linear(512, 256))
(captured,) = captured_backwards(
    model, (torch.randn(1024, 256),), loss_fn=lambda y: y.square().mean(), joint_passes=True
)
graph = native.Graph.deserialize(translate(captured, "model")[0].SerializeToString())

plans = {
    "as planned": native.Plan(graph, spec="h200"),
    "nothing fused": native.Plan(graph, spec="h200", settings={"disable": ["fusion"]}),
}
for name, plan in plans.items():
    print(f"{name:14} {plan.num_kernels:3} kernels and calls, {plan.predicted_ns / 1e3:7.1f} us")
