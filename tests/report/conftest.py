"""One browser for all pages: starting it takes longer than most tests of them."""

from __future__ import annotations

import pytest
from browser import MISSING, open_browser


@pytest.fixture(scope="session")
def browser():
    if MISSING:
        pytest.skip("chromium and chromedriver are not installed (Debian: chromium-driver)")
    with open_browser() as opened:
        yield opened
