"""One logistic gradient on SecretFlow's SPU, protocol SEMI2K; run by the Python that has SPU.

``python spu_gradient.py TABLE``: TABLE is an .npz with ``block``, ``labels`` (0 and 1),
``weights`` and ``parties``. Prints JSON: seconds of the processor over all parties, and the
gradient. Cells are shared, and the program compiled, before the clock starts.
"""

from __future__ import annotations

import json
import sys
import threading
from collections.abc import Callable
from time import process_time
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
import spu.api
import spu.utils.frontend as frontend
from spu import libspu


def gradient(block: Any, labels: Any, weights: Any) -> Any:
    slopes = jax.nn.sigmoid(block @ weights) - labels
    return block.T @ slopes / block.shape[0]


class Parties:
    """As many parties as wanted, each a thread with a runtime of its own, over memory."""

    def __init__(self, count: int) -> None:
        self._config = libspu.RuntimeConfig(
            protocol=libspu.ProtocolKind.SEMI2K, field=libspu.FieldType.FM64
        )
        self._io = spu.api.Io(count, self._config)
        ends = libspu.link.Desc()
        for rank in range(count):
            ends.add_party(f"id_{rank}", f"thread_{rank}")
        self._runtimes: list[Any] = [None] * count

        def connect(rank: int) -> None:
            link = libspu.link.create_mem(ends, rank)
            self._runtimes[rank] = spu.api.Runtime(link, libspu.RuntimeConfig(self._config))

        self._together(connect)

    def _together(self, work: Callable[[int], None]) -> None:
        threads = [
            threading.Thread(target=work, args=(rank,)) for rank in range(len(self._runtimes))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()

    def share(self, name: str, value: Any) -> None:
        parts = self._io.make_shares(value, libspu.Visibility.VIS_SECRET)
        for runtime, part in zip(self._runtimes, parts, strict=True):
            runtime.set_var(name, part)

    def run(self, program: Any) -> None:
        self._together(lambda rank: self._runtimes[rank].run(program))

    def open(self, name: str) -> Any:
        return self._io.reconstruct([runtime.get_var(name) for runtime in self._runtimes])


def main() -> None:
    held = np.load(sys.argv[1])
    values = [held[name].astype(np.float32) for name in ("block", "labels", "weights")]
    names = ["block", "labels", "weights"]
    program, _ = frontend.compile(
        frontend.Kind.JAX,
        gradient,
        tuple(jnp.asarray(value) for value in values),
        {},
        names,
        [libspu.Visibility.VIS_SECRET] * len(names),
        lambda found: ["gradient" for _ in found],
    )
    parties = Parties(int(held["parties"]))
    for name, value in zip(names, values, strict=True):
        parties.share(name, value)
    began = process_time()
    parties.run(program)
    processor = process_time() - began
    found = np.asarray(parties.open("gradient"), float).ravel().tolist()
    print(json.dumps({"processor": processor, "gradient": found}))


if __name__ == "__main__":
    main()
