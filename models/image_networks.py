"""Image networks that no package has under a usual name."""

import torch
from torch import nn
from torch.nn import functional as F


def _double_convolution(inputs, outputs):
    layers = []
    for width in (inputs, outputs):
        layers += [nn.Conv2d(width, outputs, 3, padding=1, bias=False)]
        layers += [nn.BatchNorm2d(outputs), nn.ReLU()]
    return nn.Sequential(*layers)


class UNet(nn.Module):
    """images [N, 3, H, W] -> logits [N, classes, H, W]: as Ronneberger et al. 2015, but padded and
    with batch norms. Each level halves the image and doubles the width."""

    def __init__(self, width=64, levels=4, classes=21):
        super().__init__()
        widths = [width << i for i in range(levels + 1)]
        inputs = [3, *widths]
        self.down = nn.ModuleList(_double_convolution(inputs[i], widths[i]) for i in range(levels))
        self.bottom = _double_convolution(widths[-2], widths[-1])
        pairs = list(zip(widths[:0:-1], widths[-2::-1]))
        self.up = nn.ModuleList(nn.ConvTranspose2d(a, b, 2, 2) for a, b in pairs)
        self.merge = nn.ModuleList(_double_convolution(2 * b, b) for _, b in pairs)
        self.head = nn.Conv2d(width, classes, 1)

    def forward(self, x):
        skips = []
        for block in self.down:
            skips.append(block(x))
            x = F.max_pool2d(skips[-1], 2)
        x = self.bottom(x)
        for up, merge in zip(self.up, self.merge):
            x = merge(torch.cat([up(x), skips.pop()], 1))
        return self.head(x)
