"""How far matching is, where a run is followed over a network."""

from __future__ import annotations

import logging

import msgspec
import numpy as np
import pytest
from member_sites import MemberSites
from toys import Crashed, MemoryTransport

from weft.crypto.keys import ephemeral_keys
from weft.data import SPLITS, load
from weft.federation.preprocessing_settings import Preprocessing
from weft.matching.oprf_relay import _how_far
from weft.network.coordinator_run import coordinate_run
from weft.network.envelope_bytes import Work, decode_envelope
from weft.network.run_progress import Progress
from weft.network.run_status_line import wait_text
from weft.network.submitted_task import LinearTask
from weft.solvers.run_settings import Settings

PARTIES = ("p1", "p2")
TASK = LinearTask(
    name="a run",
    parties=PARTIES,
    settings=Settings(lam=0.1, gap=0.5, solver="lbfgs", loss="logistic"),
    preprocessing=Preprocessing(matching="oprf"),
)


def test_many_parts_are_no_more_lines_than_tens_of_per_cent(caplog):
    caplog.set_level(logging.INFO, "weft.coordinator")
    progress, parts = Progress("p-1"), 79
    for part in range(1, parts + 1):
        progress.follow(_how_far(part, parts))
    logged = [record.getMessage() for record in caplog.records]
    tens = sorted({10 * (10 * part // parts) for part in range(1, parts)})
    assert logged == [f"run p-1: {ten} % of the ids are matched" for ten in tens]


def test_status_and_log_tell_how_far_matching_is(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr("weft.matching.oprf_announcement_and_limits.PART", 16)
    tiles = SPLITS["columns"](load("breast_cancer").rows(np.arange(40)), 2).parties
    sites = MemberSites(tmp_path, ephemeral_keys(PARTIES), tiles)
    progress, seen = Progress("p-1"), []

    class Watched(MemoryTransport):
        """Looks at the run's status while parties are asked, until they are matched."""

        @property
        def unanswered(self):
            return self.parties

        def fate(self, party, envelope):
            work = decode_envelope(envelope)
            phase = work.parts[0][0] if isinstance(work, Work) else ""
            seen.append((phase, wait_text(msgspec.to_builtins(progress.since().wait))))
            return "crash before" if phase == "match.view" else "fine"

    caplog.set_level(logging.INFO, "weft.coordinator")
    post = Watched([sites.place(name) for name in PARTIES])
    with pytest.raises(Crashed):
        coordinate_run(lambda parties: post, tmp_path / "coordinator", TASK, progress)
    told = ["30 % of the ids are matched", "60 % of the ids are matched"]
    logged = [record.getMessage() for record in caplog.records]
    assert [line for line in logged if "matched" in line] == [f"run p-1: {text}" for text in told]
    asked = [text for phase, text in seen if phase == "match.ask"]
    assert not [text for text in asked[:4] if "matched" in text]
    for text in told:
        assert any(f"({text}): asking the key holders about ids" in line for line in asked)
    # Once it is over, nothing is said of it.
    assert not [text for phase, text in seen if phase == "match.tokens" and "matched" in text]
