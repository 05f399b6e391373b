"""Processes of sites that are killed while samples are matched, and started again at once."""

from __future__ import annotations

import time

import pytest
from deployed import GAP, open_scene

#: Exchanges after which a site is killed: announcing is over, matching is not.
MOMENTS = (2, 4, 5)
#: Seconds that a whole run may take then; its set-up's timeout is 600.
BOUND = 120.0


@pytest.mark.release
def test_a_site_that_is_back_at_once_is_not_waited_for_until_the_timeout(tmp_path):
    """The engine drops what a site answers before it has logged in: it is asked again."""
    with open_scene(tmp_path / "scene") as scene:
        scene.start("west")
        scene.wait_connected()
        for number, exchanges in enumerate(MOMENTS):
            name, began = f"matching{number}", time.monotonic()
            scene.start_run(name, gap=100 * GAP)
            scene.wait_exchanges(name, exchanges)
            scene.kill("north")
            scene.start("north")
            assert scene.wait(name, BOUND) == 0, scene.last_words()
            assert time.monotonic() - began < BOUND
            trained = scene.in_one_process(name)
            assert scene.model(name).coef.tobytes() == trained.model.coef.tobytes()
