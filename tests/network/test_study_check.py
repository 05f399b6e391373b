"""A check of a study over a network: counts, and who would refuse, before anything is trained."""

from __future__ import annotations

import dataclasses
import json
import re

import msgspec
import numpy as np
import pytest
from member_sites import MemberSites
from toys import MemoryTransport

from covering import every_value
from weft.cli.check_over_network import show_check
from weft.crypto.keys import ephemeral_keys, load_all, new_keys
from weft.data import Tile
from weft.data.columns.column_rules import ColumnRule, encode_rules
from weft.errors import ConfigError, ProtocolError, WeftError
from weft.federation.preprocessing_settings import Preprocessing
from weft.federation.study_check_messages import CHECK_FILES
from weft.guards.privacy_terms import OPEN, Terms
from weft.network.envelope_bytes import Work
from weft.network.site_data_keys_and_consent import load_member
from weft.network.study_check_job import read_check
from weft.network.submitted_task import CheckTask
from weft.privacy.agreement import Limits, SitePolicy
from weft.privacy.ledger.run_booking import Ledger
from weft.protocol import Nothing
from weft.solvers.run_settings import Settings

#: Rows of a table of a hundred and columns; south and west share four samples that north lacks.
CUTS = {
    "north": (range(60), ("age", "dose")),
    "south": (range(20, 64), ("marker", "pressure", "age")),
    "west": (range(20, 100), ("height", "weight")),
}
TERMS = msgspec.structs.replace(OPEN, min_batch=10)


def tiles(cuts=CUTS, **changes):
    """Names of columns and labels may be changed by party."""
    cells, labels = np.random.default_rng(0).normal(size=(100, 3)), np.arange(100) % 2
    found = {}
    for name, (rows, columns) in cuts.items():
        named, told = changes.get(name, (columns, labels[list(rows)] if name != "west" else None))
        told = None if told is None else np.asarray(told)[: len(rows)]
        block = cells[list(rows)][:, : len(named)]
        found[name] = (Tile.make([f"n{row:03}" for row in rows], named, block, told),)
    return found


@pytest.fixture(scope="module")
def keys():
    return ephemeral_keys(tuple(CUTS))


def task(**changes):
    told = {
        "settings": Settings(lam=0.1, loss="logistic"),
        "preprocessing": Preprocessing(scaling="standard"),
    }
    return CheckTask(**{"name": "trial", "parties": tuple(CUTS), **told, **changes})


class Watching(MemoryTransport):
    """Keeps the phases that were asked."""

    phases: set[str]

    def __init__(self, places):
        super().__init__(places)
        Watching.phases = set()

    def send(self, envelopes, timeout):
        answers = super().send(envelopes, timeout)
        Watching.phases |= {
            name for _, sent in self.sent if isinstance(sent, Work) for name, _ in sent.parts
        }
        return answers


def test_the_submitter_gets_counts_and_nothing_of_small_groups(tmp_path, keys, capsys):
    found = read_check(MemberSites(tmp_path, keys, tiles(), terms=TERMS).ask(task(), Watching))
    assert found["parties"] == [
        {"name": "north", "samples": 60, "features": 2, "labels": 60},
        # Its four samples that north lacks are in a group of fewer than ten.
        {"name": "south", "samples": 40, "features": 3, "labels": 40},
        {"name": "west", "samples": 40, "features": 2, "labels": 0},
    ]
    groups = {tuple(one["holders"]): one["samples"] for one in found["groups"]}
    assert groups == {("north", "south", "west"): 40, ("north",): 20, ("south", "west"): "<10"}
    shared = {tuple(one["holders"]): one["features"] for one in found["features"]}
    assert shared == {("north", "south"): 1, ("north",): 1, ("south",): 2, ("west",): 2}
    assert found["min_batch"] == 10
    assert found["left_out"] is True
    # No sum was asked for, and no id or cell is in what came back.
    assert {name.split(".")[0] for name in Watching.phases} == {
        "announce", "classes", "check", "match",
    }  # fmt: skip
    assert not any(name in Watching.phases for name in ("match.view", "match.keys"))
    assert "n0" not in json.dumps(found)
    show_check(found, "weft submit", json=False)
    said = capsys.readouterr().out
    assert "<10" in said
    assert "LIKELY REACHED" in said or "REACHED" in said
    assert "Ready: weft submit" in said
    assert "no ledger" not in said


def test_a_party_that_is_no_member_any_more_is_named_before_secrets_are_compared(tmp_path, keys):
    held = {name: keys[name] for name in ("north", "south")}
    sites = MemberSites(tmp_path, keys, tiles(), terms=TERMS)
    known = {name: each.identity.public for name, each in held.items()}
    for name in held:
        sites.members[name] = dataclasses.replace(sites.members[name], members=known)
    with pytest.raises(ProtocolError, match="knows no west by its keys; leave out who") as told:
        sites.ask(task())
    assert "secret" not in str(told.value)


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"west": (("Marker", "weight"), None)}, "names that differ only in case"),
        ({"south": (CUTS["south"][1], 1 - np.arange(100) % 2)}, "give different labels"),
    ],
)
def test_what_is_written_in_two_ways_is_told_and_the_rest_counted(tmp_path, keys, changes, words):
    found = read_check(MemberSites(tmp_path, keys, tiles(**changes), terms=TERMS).ask(task()))
    assert any(words in doubt for doubt in found["doubts"])
    assert found["parties"][0]["samples"] == 60
    with pytest.raises(ConfigError, match=words):
        show_check(found, "weft submit", json=True)


def rewritten(begin="n", factor=1.0):
    """South's ids begin otherwise, and its ages, as north's, are of a size that tells units."""
    held = tiles()
    for name, (tile,) in held.items():
        at = tile.features.tolist().index("age") if "age" in tile.features.tolist() else None
        if at is not None:
            tile.block[:, at] = 50 + 9 * tile.block[:, at]
        if name == "south":
            tile.block[:, at] *= factor
            ids = [begin + one[1:] for one in tile.ids.tolist()]
            held[name] = (Tile.make(ids, tile.features.tolist(), tile.block, tile.labels),)
    return held


@pytest.mark.parametrize(
    ("held", "slip", "words"),
    [
        (rewritten(begin="N-"), "ids", "at least 10 ids of north and south differ only in"),
        (rewritten(begin=""), "ids", "at least 10 ids of north would occur at south too, without"),
        (rewritten(begin="s"), "ids", "at least 10 ids of south and west would meet without what"),
        (rewritten(factor=100.0), "units", "1 column(s) of south are about 100 times as large"),
    ],
)  # fmt: skip
def test_near_misses_are_told_with_counts_before_training(
    tmp_path, keys, caplog, held, slip, words
):
    """Forty samples meet, four are in a group too small to be counted: told rounded down."""
    found = read_check(MemberSites(tmp_path, keys, held, terms=TERMS).ask(task(), Watching))
    assert any(words in doubt for doubt in found["doubts"])
    assert "match.view" not in Watching.phases
    with pytest.raises(ConfigError):
        show_check(found, "weft submit", json=True)
    # Which column it is, the site's own log has, and nothing that left it.
    assert "'age'" not in json.dumps(found)
    assert ("'age' (median" in caplog.text) == (slip == "units")
    how = Preprocessing(scaling="standard", confirmed=(slip,), confirm_separate_ids=True)
    asked = task(preprocessing=how)
    sites = MemberSites(tmp_path / "again", keys, held, terms=TERMS)
    assert read_check(sites.ask(asked))["doubts"] == []


def test_no_min_batch_of_a_submitter_counts_the_values_of_a_column(tmp_path, keys):
    """Before, the doubt was gone from one more than the number of values on: 35 of 44 here."""
    held = rewritten(factor=100.0)
    held["south"][0].block[35:, 2] = np.nan
    said = []
    for least in (1, 35, 36):
        asked = task(
            preprocessing=Preprocessing(scaling="standard", missing="mean"),
            terms=msgspec.structs.replace(OPEN, min_batch=least),
        )
        sites = MemberSites(tmp_path / str(least), keys, held, terms=OPEN)
        said.append(read_check(sites.ask(asked))["doubts"])
    assert "100 times as large" in said[0][0]
    assert said[0] == said[1] == said[2]


def test_a_submitter_finds_the_name_of_a_column_in_other_units_by_declaring_it(tmp_path):
    """What is left: a declared column is not compared, so that its doubt is gone."""
    both, rng = ("north", "south"), np.random.default_rng(0)
    new_keys(tmp_path / "keys", both)
    sites = MemberSites(tmp_path, load_all(tmp_path / "keys", both))
    for name, factor in zip(both, (1, 1000), strict=True):
        cells = rng.normal(70, 9, size=(30, 2)) * (factor, 1)
        rows = [f"{name}{i},{a:.2f},{b:.2f},{i % 2}" for i, (a, b) in enumerate(cells)]
        (tmp_path / f"{name}.csv").write_text("\n".join(["id,weight,age,y", *rows]))
        member = load_member(
            name, [tmp_path / f"{name}.csv"], id_column="id", label="y", keys=tmp_path / "keys",
            ledger=Ledger(tmp_path / f"ledger-{name}"),
        )  # fmt: skip
        policy = SitePolicy(OPEN, Limits(kinds=("check",)))
        sites.members[name] = dataclasses.replace(member, policy=policy)
    doubts = {}
    for column in ("weight", "age"):
        rules = encode_rules({column: ColumnRule(clip=(0, 1e6))})
        sites.folder = tmp_path / column
        found = read_check(sites.ask(task(parties=both, columns=rules)))
        doubts[column] = "".join(found["doubts"])
    assert "1000 times as large" in doubts["age"]
    assert doubts["weight"] == ""


def test_labels_in_other_words_stop_before_any_token(tmp_path, keys):
    words = np.where(np.arange(100) % 2, "yes", "no")
    sites = MemberSites(tmp_path, keys, tiles(south=(CUTS["south"][1], words)), terms=TERMS)
    with pytest.raises(WeftError, match="look like the same classes in other words"):
        sites.ask(task(), Watching)
    assert "match.tokens" not in Watching.phases


def test_files_that_cannot_be_used_stop_before_anything_is_asked(tmp_path, keys):
    held = tiles()
    held["south"][0].block[3, 1] = np.nan
    with pytest.raises(WeftError, match=r"south \(has blank cells in column 'pressure'"):
        MemberSites(tmp_path, keys, held, terms=TERMS).ask(task(), Watching)
    assert Watching.phases == set()


def test_sites_say_what_they_would_refuse_without_counts(tmp_path, keys):
    terms = Terms(allow_pairs=True, allow_one_column=True)
    found = read_check(MemberSites(tmp_path, keys, tiles(), terms=terms).ask(task()))
    said = {(one["party"], one["sentence"]) for one in found["refusals"]}
    assert {party for party, _ in said} == set(CUTS)
    assert any("lacks columns" in sentence for _, sentence in said)
    # Terms may be named, sizes of groups not.
    assert not any(re.search(r"\b(4|20|36|40|44|60|80)\b", sentence) for _, sentence in said)


def test_too_few_samples_for_standard_errors_are_told_without_small_groups(tmp_path, keys):
    """All sites hold the same columns; of 44 samples at south, four are in a group too small."""
    columns = ["a", "b", "c"]
    held = tiles({name: (rows, columns) for name, (rows, _) in CUTS.items()})
    settings = Settings(
        lam=0.1, loss="logistic", penalize_intercept=False, inference="model", solver="lbfgs"
    )
    how = Preprocessing(scaling="standard", intercept=True)
    asked = task(settings=settings, preprocessing=how)
    terms = msgspec.structs.replace(TERMS, min_batch=10, allow_second_moments=True)
    fits = read_check(MemberSites(tmp_path / "a", keys, held, terms=terms).ask(asked))
    assert not any("for every coefficient" in one["sentence"] for one in fits["refusals"])
    few = {name: (range(20), columns) for name in CUTS}
    sites = MemberSites(tmp_path / "b", keys, tiles(few), terms=terms)
    said = [one["sentence"] for one in read_check(sites.ask(asked))["refusals"]]
    assert any("10 samples for every coefficient, but there are 20" in one for one in said)


def test_intercepts_of_sites_are_the_only_columns_of_one_site_that_errors_in_sums_allow(
    tmp_path, keys
):
    rows = {"north": range(34), "south": range(34, 67), "west": range(67, 100)}
    settings = Settings(
        lam=0.1, loss="logistic", penalize_intercept=False, inference="model", solver="lbfgs"
    )
    terms = Terms(min_batch=10, allow_second_moments=True, allow_site_statistics=True)

    def refused(folder, tables, site):
        how = Preprocessing(scaling="standard", intercept=True, reference_site=site)
        asked = task(settings=settings, preprocessing=how)
        return read_check(MemberSites(folder, keys, tables, terms=terms).ask(asked))["refusals"]

    def held(*columns):
        named = {name: [each.format(name) for each in columns] for name in rows}
        cut = {name: (rows[name], named[name]) for name in rows}
        return tiles(cut, west=(named["west"], np.arange(100) % 2))

    assert not refused(tmp_path / "alike", held("age", "dose"), "north")
    own = held("age", "dose at {}")
    said = [one["sentence"] for one in refused(tmp_path / "own", own, None)]
    assert any("all columns of the model at every party" in one for one in said)


def all_that_is_told(folder, keys, held, asked, terms=TERMS):
    """What a submitter gets of a check, or why it got nothing."""
    try:
        return read_check(MemberSites(folder, keys, held, terms=terms).ask(asked))
    except WeftError as error:
        return error.told


@every_value(solver=["auto", "sealed"], own=[TERMS, OPEN])
def test_no_min_batch_of_a_submitter_tells_the_size_of_a_small_group(tmp_path, keys, solver, own):
    """South and west share four samples that north lacks, or seven: no check differs in a word.

    On shares they are left out of the run, which is told; in sums they are only left out of counts.
    """
    asked = [
        task(
            settings=Settings(lam=0.1, loss="logistic", solver=solver),
            terms=msgspec.structs.replace(OPEN, min_batch=least),
        )
        for least in (10, 65)
    ]
    told = []
    for small in (4, 7):
        cuts = {
            "north": (range(60), ("age", "dose")),
            "south": (range(20, 60 + small), ("marker", "pressure")),
            "west": (range(20, 60 + small), ("height", "weight")),
        }
        held = tiles(cuts)
        told.append(
            [
                all_that_is_told(tmp_path / f"{small}-{i}", keys, held, one, own)
                for i, one in enumerate(asked)
            ]
        )
    assert told[0] == told[1]
    assert told[0][0]["groups"][-1]["samples"] == "<10"
    assert told[0][0]["left_out"] == (solver == "sealed")
    # What is left out, and what is not, is not for the forecast to say.
    assert not any("leaves no sample" in line for line in told[0][0]["outlook"])
    assert isinstance(told[0][1], str) == (solver == "sealed" and own is OPEN)


def test_labels_that_a_study_names_are_not_found_out(tmp_path, keys):
    """A check says the same whether or not a site has samples with them."""
    told = [
        all_that_is_told(tmp_path / str(i), keys, tiles(), task(positive=named))
        for i, named in enumerate([(1,), (7,), ("zebra",)])
    ]
    assert told[0] == told[1] == told[2]
    assert told[0]["classes"] == 2


@pytest.mark.parametrize("tells", [True, False])
def test_notes_name_no_column_where_a_site_keeps_columns_back(tmp_path, keys, tells):
    new_keys(tmp_path / "keys-north", ("north",))
    rows = [f"n{row:03},{row % 7}%,{row % 5},{row % 2}" for row in range(40)]
    (tmp_path / "north.csv").write_text("\n".join(["id,share,age,y", *rows]))
    (tmp_path / "policy.toml").write_text(
        f'kinds = ["check"]\ntell_columns = {str(tells).lower()}\n'
    )
    member = load_member(
        "north", [tmp_path / "north.csv"], id_column="id", label="y", keys=tmp_path / "keys-north",
        ledger=Ledger(tmp_path / "ledger"), policy=tmp_path / "policy.toml",
    )  # fmt: skip
    party = member.open_party(task(parties=("north",)).told(), {})
    notes = party.on(CHECK_FILES, Nothing()).notes.tolist()
    assert any("share" in note for note in notes) == tells
    assert bool(notes) == tells


def test_a_site_tells_counts_only_if_it_agreed_to_checks(tmp_path, keys):
    sites = MemberSites(tmp_path, keys, tiles(), limits={"west": Limits()})
    with pytest.raises(WeftError, match="west refuses a job of kind 'check'"):
        sites.ask(task())


def test_a_study_declares_columns_that_sites_hold_as_text(tmp_path, keys):
    """A site has wards in words; a study without a rule for them is refused there."""
    new_keys(tmp_path / "keys-north", ("north",))
    rows = [f"n{row:03},{'AB'[row % 2]},{row % 7},{row % 2}" for row in range(40)]
    (tmp_path / "north.csv").write_text("\n".join(["id,ward,age,y", *rows]))
    member = load_member(
        "north", [tmp_path / "north.csv"], id_column="id", label="y", keys=tmp_path / "keys-north",
        ledger=Ledger(tmp_path / "ledger"),
    )  # fmt: skip
    assert any("'ward' is not numeric" in note for note in member.notes)
    with pytest.raises(WeftError) as refused:
        member.training_tiles(task())
    assert refused.value.harmless.startswith("its column 'ward' is not numeric")
    declared = encode_rules({"ward": ColumnRule(kind="category"), "absent": ColumnRule(blank=0)})
    (tile,), _ = member.training_tiles(task(columns=declared))
    assert sorted(tile.declared.rules) == ["ward"]
    assert tile.features.tolist() == ["age"]
    with pytest.raises(ConfigError, match="declares columns in an unknown way"):
        member.training_tiles(task(columns='{"ward": {"kind": "colour"}}'))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--network", "nowhere"], "nowhere is no start-up kit"),
        (["--network", "kit", "--ledger", "books"], "--ledger is for one process"),
    ],
)
def test_what_cannot_be_checked_is_one_sentence(weft, tmp_path, options, words):
    (tmp_path / "study.toml").write_text('name = "study"\n')
    code, out, err = weft("check", "study.toml", *options)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert words in err
