"""What the last digits of a network's numbers depend on, where it is trained."""

from __future__ import annotations

from hashlib import blake2b

import torch
from torch.nn import functional

from weft_neural.cuda_device_and_vectors import Device, device_of

#: Large enough for PyTorch to use all its threads.
_SIZE = 256


def network_digits(wish: Device) -> bytes:
    """A hash of PyTorch, its threads and its device, and of what products come to there.

    Another version, processor or number of threads adds up in another order.
    """
    device = device_of(wish)
    name = torch.cuda.get_device_name(device) if device.type == "cuda" else "cpu"
    cells = torch.arange(_SIZE**2, dtype=torch.float64).sin().reshape(_SIZE, _SIZE)
    square = cells.float().to(device)
    with torch.no_grad():
        filtered = functional.conv2d(
            square.reshape(1, 4, 64, _SIZE), square[:8, :36].reshape(8, 4, 3, 3)
        )
        found = [square @ square.T, torch.exp(square).log_softmax(dim=1), filtered]
    digest = blake2b(digest_size=16, person=b"weft networks")
    digest.update(repr((torch.__version__, torch.get_num_threads(), name)).encode())
    for numbers in found:
        digest.update(numbers.cpu().numpy().tobytes())
    return digest.digest()
