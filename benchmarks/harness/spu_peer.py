"""SecretFlow's SPU as a peer, in a virtual environment of its own: it wants numpy < 2."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]

VERSION = "0.9.5"
_SCRIPT = Path(__file__).with_name("spu_gradient.py")
#: Of an installation, and of a gradient, in seconds.
_LONGEST = 1800


@dataclass(frozen=True)
class PeerGradient:
    """One gradient of the peer: seconds of the processor over all its parties, and its error."""

    seconds: float
    error: float


def peer_python() -> Path | None:
    """The Python that has SPU, in WEFT_CACHE or the folder for temporary files; made if need be.

    None: it cannot be installed here.
    """
    folder = Path(os.environ.get("WEFT_CACHE") or tempfile.gettempdir()) / f"weft-spu-{VERSION}"
    python = folder / "bin" / "python"
    done = folder / "installed"
    if done.is_file():
        return python
    print(f"installing SPU {VERSION} in {folder} …", flush=True)
    try:
        for command in (
            [sys.executable, "-m", "venv", str(folder)],
            [str(python), "-m", "pip", "install", "-q", f"spu=={VERSION}", "numpy<2"],
            [str(python), "-c", "import spu.utils.frontend"],
        ):
            subprocess.run(command, check=True, capture_output=True, timeout=_LONGEST)
    except (OSError, subprocess.SubprocessError) as error:
        print(f"  {error}", flush=True)
        return None
    done.touch()
    return python


def peer_gradient(
    python: Path, block: Floats, labels: Floats, weights: Floats, parties: int
) -> PeerGradient:
    """One logistic gradient under SEMI2K; ``labels`` are 0 and 1."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "table.npz"
        np.savez(path, block=block, labels=labels, weights=weights, parties=parties)
        ran = subprocess.run(
            [str(python), str(_SCRIPT), str(path)],
            check=True,
            capture_output=True,
            timeout=_LONGEST,
            # Weft's packages are none of the peer's.
            env={name: value for name, value in os.environ.items() if name != "PYTHONPATH"},
        )
    told = json.loads(ran.stdout.splitlines()[-1])
    true = block.T @ (1.0 / (1.0 + np.exp(-(block @ weights))) - labels) / len(block)
    return PeerGradient(told["processor"], float(np.abs(np.array(told["gradient"]) - true).max()))
