"""Output folders: what cannot be written is found out before the work."""

import os

import pytest

from weft.errors import ConfigError
from weft.storage.atomic_folder import refuse_existing


def test_a_folder_that_cannot_be_made_is_refused_before_anything_is_done(tmp_path, monkeypatch):
    refuse_existing(tmp_path / "new" / "results")
    assert not (tmp_path / "new").exists()
    (tmp_path / "file").touch()
    with pytest.raises(ConfigError, match=r"file is no folder that can be written; name another"):
        refuse_existing(tmp_path / "file" / "results")
    asked = []
    # Whoever runs this may be allowed everything.
    monkeypatch.setattr(os, "access", lambda path, mode: asked.append((path, mode)))
    with pytest.raises(ConfigError, match="cannot be made"):
        refuse_existing(tmp_path / "new" / "results")
    assert asked == [(tmp_path, os.W_OK | os.X_OK)]
