"""PyTorch's devices: which one to use, and vectors that stay there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal, Self

import numpy as np
import torch
from numpy.typing import NDArray

from weft.errors import ConfigError
from weft_neural.weighted_means_on_host_or_device import DeviceVector, Vector

Device = Literal["auto", "cpu", "cuda"]


def device_of(wish: Device) -> torch.device:
    """CUDA where there is some, unless the CPU is asked for."""
    if wish == "cpu" or (wish == "auto" and not torch.cuda.is_available()):
        return torch.device("cpu")
    if not torch.cuda.is_available():
        raise ConfigError("device = 'cuda', but PyTorch finds no CUDA device; use 'auto' or 'cpu'")
    return torch.device("cuda", torch.cuda.current_device())


class OnTorch(DeviceVector):
    """A vector in the memory of a CUDA device."""

    def __init__(self, tensor: torch.Tensor) -> None:
        self.tensor = tensor

    @property
    def nbytes(self) -> int:
        return self.tensor.nbytes

    @property
    def size(self) -> int:
        return self.tensor.numel()

    def to_host(self) -> NDArray[Any]:
        return np.asarray(self.tensor.cpu().numpy())

    def piece(self, start: int, stop: int) -> Self:
        return type(self)(self.tensor[start:stop])

    def joined(self, others: Sequence[Self]) -> Self:
        return type(self)(torch.cat([self.tensor, *(other.tensor for other in others)]))

    def mean(self, others: Sequence[Self], weights: Sequence[float]) -> Self:
        result = self.tensor * weights[0]
        for other, weight in zip(others, weights[1:], strict=True):
            result.add_(other.tensor, alpha=weight)
        return type(self)(result)


def new_stream(device: torch.device) -> torch.cuda.Stream:
    """A queue of work on a CUDA device, besides those that there are."""
    return torch.cuda.Stream(device)  # type: ignore[no-untyped-call]


def sent(tensor: torch.Tensor) -> Vector:
    """A copy for a message, which later steps do not change."""
    if tensor.is_cuda:
        return OnTorch(tensor.detach().clone())
    return np.array(tensor.detach().numpy(), np.float32)


def received(vector: Vector, into: torch.Tensor) -> None:
    """Copy what a message holds into a tensor."""
    if isinstance(vector, OnTorch):
        into.copy_(vector.tensor)
    elif isinstance(vector, np.ndarray):
        # Arrays of messages may be read-only, which PyTorch warns about.
        into.copy_(torch.from_numpy(np.array(vector)))
    else:
        raise TypeError(f"{type(vector).__name__} is no vector of this process")
