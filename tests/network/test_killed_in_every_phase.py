"""Real processes that are killed in every phase of a run: a sample of the matrix without processes.

That is in ``test_deaths_in_every_phase.py`` and ``test_deaths_in_every_method.py``. Here a site
stands still at the first letter of a phase, so that the moment does not depend on the machine.
"""

from __future__ import annotations

import time

import psutil
import pytest
from deployed import GAP, HERE, open_scene
from halting import reached_by

from weft.network.kits.nvflare_settings_of_kit import COORDINATOR
from weft_examples.local_federation_processes import FederationProcesses

#: Who is killed when: the site as a whole, the process in which it works, the process of the run at
#: the coordinator, and all of the coordinator.
CELLS = (
    ("announcing", "site"),
    ("matching", "coordinator"),
    ("scaling", "working process"),
    ("solver", "run's process"),
    ("release", "working process"),
    ("closing", "site"),
)
#: Seconds that a whole run may take then; its set-up's timeout is 600.
BOUND = 240.0


@pytest.mark.release
def test_whoever_is_killed_in_whatever_phase_the_model_is_that_of_one_process(tmp_path):
    order = tmp_path / "order"
    with open_scene(tmp_path / "scene") as scene:
        # It takes part in four runs at most.
        policy = scene.policy("west")
        policy.write_text(policy.read_text().replace("most_runs = 4", "most_runs = 40"))
        scene.kill("north")
        start_halting(scene, "north", order)
        scene.start("west")
        scene.wait_connected()
        for phase, role in CELLS:
            name, began = f"in-{phase}", time.monotonic()
            order.write_text(phase)
            scene.start_run(name, gap=100 * GAP)
            scene.wait_for(f"{phase} of {name}", reached_by(order).exists, needed=[name])
            kill(scene, role, order)
            assert scene.wait(name, BOUND) == 0, (phase, role, scene.last_words())
            assert time.monotonic() - began < BOUND
            trained = scene.in_one_process(name)
            assert scene.model(name).coef.tobytes() == trained.model.coef.tobytes(), (phase, role)
    assert not list(scene.processes())


def start_halting(scene, name, order):
    with scene.running(str(HERE / "halting.py"), str(order)):
        told = ("--policy", str(scene.policy(name)), "--new", str(scene.new(name)))
        FederationProcesses.start(scene, name, *told)


def kill(scene, role, order):
    """While the site stands still; whoever nobody else starts again is started again."""
    if role == "working process":
        end(scene.working("north"))
    elif role == "run's process":
        (job,) = scene.children(COORDINATOR)
        end(job)
    else:
        scene.kill({"site": "north"}.get(role, role))
    reached_by(order).unlink()
    if role == "site":
        start_halting(scene, "north", order)
    elif role == "coordinator":
        scene.start(COORDINATOR)


def end(process: psutil.Process):
    process.kill()
    process.wait(60)
