"""Paths of a machine stay there: neither submitters nor consoles read them."""

from __future__ import annotations

from pathlib import PurePosixPath
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st
from toys import MemoryTransport, Place, Toy, toy

from covering import examples
from weft.errors import ConfigError
from weft.network.envelope_bytes import Failed, Hello, decode_reply, encode
from weft.network.exchange_outcomes_and_journal_records import ask
from weft.network.hide_paths import HIDDEN, without_paths
from weft.network.network_channel import NetworkChannel
from weft.network.run_progress import Progress
from weft.network.site_answers_envelopes import Site
from weft.protocol import Failure, pack
from weft.storage.journal import Journal

PATH = "/srv/weft/north/tables/patients-2026.csv"


@pytest.mark.parametrize(
    ("sentence", "told"),
    [
        (f"{PATH} cannot be read", f"{HIDDEN} cannot be read"),
        (f"cannot read '{PATH}'; check it", f"cannot read {HIDDEN}; check it"),
        ("no space (/var/lib/x)", f"no space ({HIDDEN})"),
        ("[Errno 2] No such file: '/srv/two words/x y'", f"[Errno 2] No such file: {HIDDEN}"),
        ("/srv/two words/x is gone", f"{HIDDEN} is gone"),
        ("look into ~/kit, then go on", f"look into {HIDDEN}, then go on"),
        (r"C:\weft\kit is full, and \\host\share too", f"{HIDDEN} is full, and {HIDDEN} too"),
    ],
)
def test_a_path_is_hidden_and_the_rest_of_the_sentence_stays(sentence, told):
    assert without_paths(sentence) == told


@pytest.mark.parametrize(
    "sentence",
    [
        "give the run up with weft stop KIT RUN --forget",
        "3/4 of the samples and/or columns are at north; 1e-6 m/s",
        "see https://example.org/docs/kits.html",
        "party south: column 'a/b' is not there",
        "λ₁/λ₂ is 5 / 3",
    ],
)
def test_what_is_no_path_stays(sentence):
    assert without_paths(sentence) == sentence


@examples(60)
@given(
    st.lists(
        st.text(st.characters(categories=("L", "N"), include_characters=" -_."), min_size=1).filter(
            str.strip
        ),
        min_size=2,
        max_size=5,
    )
)
def test_of_a_quoted_path_nothing_stays(parts):
    path = str(PurePosixPath("/", *parts))
    assert without_paths(f"cannot open '{path}' now") == f"cannot open {HIDDEN} now"


def test_neither_a_report_nor_its_notes_hold_a_path():
    progress = Progress("r-1")
    progress.end(
        "failed", f"{PATH} is damaged", away={"north": Failure("failed", f"has no {PATH}")}
    )
    told = progress.since()
    assert PATH not in repr(told)
    assert told.sentence == f"{HIDDEN} is damaged"


def test_a_coordinator_repeats_no_path_that_a_site_tells():
    answers = SimpleNamespace(
        send=lambda envelopes, timeout: dict.fromkeys(
            envelopes, encode(Failed("refused", f"lost {PATH}"))
        )
    )
    assert ask(answers, {"north": b""}, 1.0)["north"].reason == f"lost {HIDDEN}"


class Pathetic(Toy):
    """Refuses with a path in its reason."""

    def on(self, phase, message):
        raise ConfigError(f"{PATH} does not fit")


def test_a_site_tells_no_path_and_logs_it(tmp_path, caplog):
    def refuse(request):
        raise ConfigError(f"{PATH} is missing")

    site = Site(tmp_path / "site", refuse)
    told = decode_reply(site.answer(encode(Hello.of("r-1", pack({})))))
    site.close()
    assert told.reason == f"{HIDDEN} is missing"
    assert f"{PATH} is missing" in caplog.text


def test_a_record_of_presence_holds_no_path(tmp_path):
    place = Place("north", tmp_path / "north", lambda request: Pathetic("north"))
    journal = Journal(tmp_path / "journal")
    channel = NetworkChannel(MemoryTransport([place]), "r-1", journal)
    channel.hello({})
    channel.ask(toy("look"), {"north": toy("look").request(x=1)})
    assert HIDDEN in repr(channel.presence.moments)
    assert PATH not in repr(channel.presence.moments)
    channel.close()
    journal.close()
    place.site.close()
