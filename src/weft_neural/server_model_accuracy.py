"""Measuring the server's model on samples of which somebody has all blocks."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from weft_neural.cuda_device_and_vectors import Device, device_of, received
from weft_neural.local_sgd_steps import Samples, share_right
from weft_neural.neural_network import Net, perceptron
from weft_neural.scaling import as_input
from weft_neural.server_aggregation import Server


class ServerJudge:
    """Accuracy of a server's model.

    Parameters
    ----------
    blocks
        Samples by block, as they were measured.
    labels
        Numbers of their classes.
    """

    def __init__(
        self,
        blocks: Mapping[str, NDArray[Any]],
        labels: NDArray[np.int64],
        *,
        device: Device = "auto",
    ) -> None:
        self._blocks, self._labels = blocks, labels
        self._device = device_of(device)
        self._net: Net | None = None
        self._samples: Samples | None = None

    @torch.no_grad()
    def __call__(self, server: Server) -> float:
        """Share of the samples that the model puts into the right class."""
        net, samples = self._prepared(server)
        for name, vector in server.extractors.items():
            size, _ = server.assembly.sizes[name]
            weights, statistics = net.pieces([name])
            whole = torch.empty(len(weights) + len(statistics), device=self._device)
            received(vector, whole)
            weights.copy_(whole[:size])
            statistics.copy_(whole[size:])
        layers = server.matched.layers if server.matched is not None else []
        tensors = [torch.from_numpy(np.asarray(w, np.float32)).to(self._device) for w in layers]
        rows = [(layer[:, :-1], layer[:, -1]) for layer in tensors]
        return share_right(lambda inputs: perceptron(rows, net.extracted(inputs)), samples)

    def _prepared(self, server: Server) -> tuple[Net, Samples]:
        """The network without its classifier, whose rows may change, and the samples it reads."""
        if self._net is None or self._samples is None:
            blocks = server.assembly.blocks
            self._net = Net(blocks, (1,), 2, device=self._device).eval()
            scaling = server.assembly.scaling
            inputs = {name: as_input(self._blocks[name], scaling.get(name)) for name in blocks}
            self._samples = Samples(list(blocks), inputs, self._labels, self._device)
        return self._net, self._samples
