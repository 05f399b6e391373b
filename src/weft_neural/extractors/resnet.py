"""Residual networks of basic blocks, after He, Zhang, Ren and Sun (CVPR 2016), Table 1.

Only the CNN part, followed by one average pooling, as the text of HyFEM has it.
"""

from __future__ import annotations

from typing import Literal

from torch import Tensor, nn

Norm = Literal["batch", "group"]

#: Channels of the four stages.
_STAGES = (64, 128, 256, 512)
#: Of channels, for group normalisation.
GROUPS = 32


class ResNet(nn.Module):
    """(n, channels, height, width) → (n, 512).

    Parameters
    ----------
    channels
        Of an image.
    blocks
        Basic blocks of the four stages: (2, 2, 2, 2) is ResNet-18, (3, 4, 6, 3) is ResNet-34.
    small_stem
        Begin with a 3 × 3 convolution that keeps the size, instead of the published 7 × 7 with
        stride 2 and max-pool, after which a block of 16 pixels would have 4.
    norm
        See `weft_neural.extractors.options.ResNetOptions`.
    """

    def __init__(
        self, channels: int, blocks: tuple[int, int, int, int], *, small_stem: bool, norm: Norm
    ) -> None:
        super().__init__()
        self.stem = _stem(channels, small_stem, norm)
        stages: list[nn.Module] = []
        before = _STAGES[0]
        for stage, (count, width) in enumerate(zip(blocks, _STAGES, strict=True)):
            for place in range(count):
                stride = 2 if stage > 0 and place == 0 else 1
                stages.append(_Basic(before, width, stride, norm))
                before = width
        self.stages = nn.Sequential(*stages)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def forward(self, images: Tensor) -> Tensor:
        # A mean over the last two axes is the pooling, in either memory format.
        pooled: Tensor = self.stages(self.stem(images)).mean(dim=(2, 3))
        return pooled


class _Basic(nn.Module):
    """y = ReLU(F(x) + x), F two 3 × 3 convolutions; x is projected where the shape changes."""

    def __init__(self, before: int, after: int, stride: int, norm: Norm) -> None:
        super().__init__()
        self.residual = nn.Sequential(
            _convolution(before, after, 3, stride),
            _norm(after, norm),
            nn.ReLU(inplace=True),
            _convolution(after, after, 3, 1),
            _norm(after, norm),
        )
        self.shortcut: nn.Module = nn.Identity()
        if stride != 1 or before != after:
            self.shortcut = nn.Sequential(
                _convolution(before, after, 1, stride), _norm(after, norm)
            )
        self.relu = nn.ReLU(inplace=True)

    def forward(self, x: Tensor) -> Tensor:
        y: Tensor = self.relu(self.residual(x) + self.shortcut(x))
        return y


def _stem(channels: int, small: bool, norm: Norm) -> nn.Sequential:
    width = _STAGES[0]
    size, stride = (3, 1) if small else (7, 2)
    layers = [
        _convolution(channels, width, size, stride),
        _norm(width, norm),
        nn.ReLU(inplace=True),
    ]
    if not small:
        layers.append(nn.MaxPool2d(3, stride=2, padding=1))
    return nn.Sequential(*layers)


def _convolution(before: int, after: int, size: int, stride: int) -> nn.Module:
    # The norm that follows has a bias.
    return nn.Conv2d(before, after, size, stride, padding=size // 2, bias=False)


def _norm(channels: int, norm: Norm) -> nn.Module:
    return nn.BatchNorm2d(channels) if norm == "batch" else nn.GroupNorm(GROUPS, channels)
