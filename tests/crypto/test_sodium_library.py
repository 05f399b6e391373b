"""libsodium is loaded without leaving a file behind, also by a process that is killed."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import tempfile

import pytest

from weft.crypto.primitives import sodium_library

USE = (
    "from weft.crypto.primitives import ristretto as r;"
    "assert r.multiply_base(bytes([1]) + bytes(31)).hex().startswith('e2f2ae0a6abc4e71');"
)


@pytest.mark.parametrize("end", ["", "import os; os.kill(os.getpid(), 9)"])
def test_the_temporary_folder_stays_empty(tmp_path, end):
    environment = {**os.environ, "TMPDIR": str(tmp_path)}
    done = subprocess.run([sys.executable, "-c", USE + end], env=environment, check=False)
    assert done.returncode == (-signal.SIGKILL if end else 0)
    assert not list(tmp_path.iterdir())


def test_a_file_that_rbcl_writes_is_deleted(tmp_path, monkeypatch):
    """Where the system loads no library from memory, or rbcl carries it in another way."""
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(sodium_library, "_carried_library", lambda: None)
    for name in [name for name in sys.modules if name.split(".")[0] == "rbcl"]:
        monkeypatch.delitem(sys.modules, name)
    sodium = sodium_library.load_sodium()
    assert sodium.crypto_core_ristretto255_bytes() == 32
    assert not list(tmp_path.iterdir())
