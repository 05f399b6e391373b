"""The patchwork of these tests: one of its parties has no labels."""

from functools import partial

import pytest


@pytest.fixture(scope="session")
def patchwork(patchwork):
    return partial(patchwork, unlabelled=("east",))
