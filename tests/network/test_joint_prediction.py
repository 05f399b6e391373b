"""Joint prediction over a network: the scores of one process, for the one that asks alone."""

from __future__ import annotations

import shutil
from dataclasses import replace
from functools import partial

import msgspec
import numpy as np
import pandas as pd
import pytest
from member_sites import MemberSites
from toys import MemoryTransport

from weft.config.read_cells_of_new_samples import read_samples
from weft.crypto.authenticated_party_letters import LetterError, read_letter
from weft.crypto.ciphers.block_format import read_block, words_of
from weft.crypto.keys import ephemeral_keys
from weft.errors import ProtocolError, WeftError
from weft.federation.joint_prediction_coordinator import sum_scores
from weft.federation.joint_prediction_party import JointParty
from weft.federation.local_joint_prediction import predict_scores
from weft.federation.model import Model
from weft.guards.privacy_terms import OPEN
from weft.network.prediction_job import SealedScores, read_scores, sign_prediction
from weft.network.run_results import RESULTS
from weft.network.submitted_task import PredictTask
from weft.privacy.agreement import Consent, Limits
from weft.privacy.ledger.run_booking import Ledger
from weft.protocol import LocalChannel

ASKER = "south"
#: Terms under which no two parties alone share a sum.
CAREFUL = msgspec.structs.replace(OPEN, allow_pairs=False, min_contributors=3)
#: Rows and columns of new samples at each party; nobody but north has the first five samples.
CUTS = {
    "north": (range(30), ("a", "b")),
    "south": (range(5, 25), ("c", "d")),
    "west": (range(10, 35), ("e", "f", "a")),
}


@pytest.fixture(scope="module")
def model():
    rng = np.random.default_rng(0)
    features = np.array(list("abcdef"), dtype=object)
    return Model(
        features, rng.normal(size=(3, 6)), rng.normal(size=3), np.array(["x", "y", "z"]),
        (rng.normal(size=6), np.ones(6)), "hinge", {}, 0.1, {},
    )  # fmt: skip


@pytest.fixture(scope="module")
def keys():
    return ephemeral_keys(tuple(CUTS))


@pytest.fixture
def files(tmp_path):
    cells = np.random.default_rng(1).normal(size=(35, 6))
    found = {}
    for name, (rows, columns) in CUTS.items():
        frame = pd.DataFrame(cells[list(rows)], columns=list("abcdef"))[list(columns)]
        frame.insert(0, "id", [f"n{row}" for row in rows])
        found[name] = tmp_path / f"{name}.csv"
        frame.to_csv(found[name], index=False)
    return found


def sites_of(folder, files, keys, model, limits=None, terms=OPEN):
    """Sites with new samples, of which each has the model."""
    models = folder / "got"
    (models / "trained").mkdir(parents=True)
    model.save(models / "trained" / "model.npz")
    new = {name: (path,) for name, path in files.items()}
    got = dict.fromkeys(CUTS, models)
    return MemberSites(folder, keys, terms=terms, limits=limits, new=new, models=got)


@pytest.fixture
def sites(tmp_path, files, keys, model):
    return sites_of(tmp_path, files, keys, model)


def unsigned(model, /, **changes):
    told = {
        "model": model.fingerprint.hex(), "width": len(model.coef), "matching": "hmac",
        "asker": ASKER, "overlap": model.overlap, "signature": "",
    }  # fmt: skip
    return PredictTask(**{"name": "p", "parties": tuple(CUTS), **told, **changes})


@pytest.fixture(scope="module")
def task_for(keys):
    """A task that the party which asks has signed, for the run of these tests."""
    return lambda model, /, **changes: sign_prediction(
        unsigned(model, **changes), "p-1", keys[ASKER].identity
    )


def asked_by(*askers, **limits):
    return Limits(kinds=("predict",), askers=askers or (ASKER,), **limits)


def tiles_of(files, model):
    return {name: (read_samples(path, model, party=name).tile,) for name, path in files.items()}


def in_one_process(files, model):
    """Scores of the asker's samples, where every holder reads its own."""
    ids, scores = predict_scores(model, tiles_of(files, model))
    found = dict(zip(ids, scores, strict=True))
    wanted = [f"n{row}" for row in CUTS[ASKER][0]]
    return wanted, np.array([found[sample] for sample in wanted])


class Killing(MemoryTransport):
    """Every site is killed before each of its letters, and taken up from its journal."""

    def fate(self, party, envelope):
        return "killed before"


# Parties that are killed in matching through key holders are in ``test_replay.py``.
@pytest.mark.parametrize(("post", "matching"), [(MemoryTransport, "oprf"), (Killing, "hmac")])
def test_the_asker_gets_the_scores_of_one_process_to_the_bit(
    sites, files, keys, model, task_for, post, matching
):
    returned = sites.ask(task_for(model, matching=matching), post)
    found = read_scores(returned, keys[ASKER].identity, model)
    ids, scores = in_one_process(files, model)
    assert found.ids.tolist() == ids
    assert found.scores.tobytes() == scores.tobytes()
    saved = sites.folder / "saved"
    assert [path.parent.name for path in saved.rglob("predictions.csv")] == [ASKER]
    table = pd.read_csv(saved / ASKER / "predictions.csv")
    assert table["prediction"].tolist() == model.outcome(scores).tolist()
    assert (table[["score x", "score y", "score z"]].to_numpy() == scores).all()


def test_nobody_but_the_asker_can_read_a_score(sites, files, keys, model, task_for):
    """What crosses is recorded: ciphertext, and a letter that only the asker opens."""
    _, scores = in_one_process(files, model)
    crossed = []
    tiles = tiles_of(files, model)
    _, read = predict_scores(model, tiles, keys=keys, asker=ASKER, record=crossed.append)
    assert read.tobytes() == scores.tobytes()
    told = [entry for entry in crossed if entry.phase == "joint.scores"]
    assert [entry.party for entry in told] == [ASKER]
    blocks = []
    for entry in crossed:
        for message in (entry.message, entry.reply):
            assert not any(getattr(v, "dtype", None) == np.float64 for v in message.values())
            if "z" in message:
                blocks.append(words_of(read_block(message["z"], "a block"), "a block").ravel())
    words = np.concatenate(blocks).view(np.int64)
    # Numbers below 2^49 are what a plain block would hold.
    assert len(blocks) == len(CUTS) + 1
    assert (np.abs(words.astype(float)) < 2.0**49).mean() < 0.02
    sealed = told[0].reply["scores"]
    assert not any(score.tobytes() in sealed for score in scores.ravel())
    sealed = msgspec.msgpack.decode(
        (sites.ask(task_for(model)) / "sealed_scores.msgpack").read_bytes(), type=SealedScores
    )
    place = b"weft joint scores " + model.fingerprint + sealed.run
    assert read_letter(keys[ASKER].identity, keys[ASKER].identity.public, place, sealed.letter)
    for name in CUTS:
        if name != ASKER:
            with pytest.raises(LetterError):
                read_letter(keys[name].identity, keys[ASKER].identity.public, place, sealed.letter)


def test_of_samples_that_the_asker_does_not_hold_no_part_is_sent(files, model):
    crossed = []
    predict_scores(
        model, tiles_of(files, model), cipher="plain", asker=ASKER, record=crossed.append
    )
    sent = {
        entry.party: words_of(read_block(entry.reply["z"], "a block"), "a block")
        for entry in crossed
        if entry.phase == "joint.partial"
    }
    # North and west share fifteen more samples with each other than with the asker.
    shared = {name: len(words) for name, words in sent.items()}
    asked = {name: int(words.any(axis=1).sum()) for name, words in sent.items()}
    assert shared == {"north": 25, "south": 20, "west": 20}
    assert asked == {"north": 20, "south": 20, "west": 15}


def test_ledgers_count_what_the_asker_was_shown(tmp_path, files, model):
    ledger = Ledger(tmp_path / "ledger")
    predict_scores(model, tiles_of(files, model), ledger=ledger, asker=ASKER)
    counts = {}
    for name in CUTS:
        pages = ledger.book(name).read()
        counts[name] = (int((pages.received > 0).sum()), int((pages.shown > 0).sum()))
    assert counts == {"north": (0, 20), "south": (20, 0), "west": (0, 15)}


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"most_explained": 0.2}, "than most_explained = 0.2"),
        ({"allow_exposure": False}, "agree on allow_exposure = true"),
    ],
)
def test_more_than_agreed_is_not_explained_by_predictions(tmp_path, files, model, changes, words):
    """Three scores of a sample, one for each class, are as many sums about its columns."""
    consents = {name: Consent.open(name) for name in CUTS}
    predict_scores(
        model, tiles_of(files, model), consents=consents, ledger=Ledger(tmp_path / "open")
    )
    consents["west"] = Consent("west", msgspec.structs.replace(OPEN, **changes))
    with pytest.raises(WeftError, match=f"west refuses .*{words}"):
        predict_scores(
            model, tiles_of(files, model), consents=consents, ledger=Ledger(tmp_path / "careful")
        )


@pytest.mark.parametrize(
    ("changes", "limits", "words"),
    [
        ({}, {"north": Limits()}, "refuses a job of kind 'predict', since only linear may be run"),
        (
            {},
            {"west": asked_by("west", "north")},
            "west refuses to show scores to south, since only west and north may ask",
        ),
        (
            {},
            {"west": asked_by(least_asked=16)},
            "west refuses scores of so few samples of its, of which least_asked = 16",
        ),
        (
            {},
            {"north": asked_by(most_asked=19)},
            "north refuses scores of so many samples of its, of which most_asked = 19",
        ),
        (
            {},
            {"north": asked_by(most_scores=59)},
            "north refuses further scores of its samples, since all joint predictions may show "
            "most_scores = 59",
        ),
        (
            {},
            {"west": Limits(kinds=("predict",))},
            r"nor the roster says who may ask; its owner adds askers = \['south'\] to its policy",
        ),
        ({"overlap": "sum"}, {}, "refuses overlap = 'sum', since the model was trained with overl"),
        ({"model": "00" * 16}, {}, "does not have the model that scores are asked of"),
        ({"asker": "east"}, {}, "'east' asks for scores, but is not among the parties"),
    ],
)
def test_a_site_refuses_what_it_did_not_agree_to(
    tmp_path, files, keys, model, task_for, changes, limits, words
):
    sites = sites_of(tmp_path, files, keys, model, limits)
    with pytest.raises(WeftError, match=words):
        sites.ask(task_for(model, **changes))
    assert not list(tmp_path.rglob("predictions.csv"))
    assert not (tmp_path / "coordinator" / RESULTS).exists()


@pytest.mark.parametrize("limits", [{"least_asked": 15}, {"most_asked": 15}, {"most_scores": 45}])
def test_as_many_samples_as_agreed_are_scored(tmp_path, files, keys, model, task_for, limits):
    sites = sites_of(tmp_path, files, keys, model, {"west": asked_by(**limits)})
    assert (sites.ask(task_for(model)) / "sealed_scores.msgpack").exists()


def test_sites_that_were_told_of_different_askers_show_nothing(
    tmp_path, files, keys, model, task_for
):
    """A coordinator tells west that north asks, which may ask but did not."""
    sites = sites_of(tmp_path, files, keys, model, {"west": asked_by("north", ASKER)})

    class Lying(MemoryTransport):
        def send(self, envelopes, timeout):
            changed = {
                party: _renamed(packed) if party == "west" else packed
                for party, packed in envelopes.items()
            }
            return super().send(changed, timeout)

    with pytest.raises(ProtocolError, match="is not signed with the keys of 'north'"):
        sites.ask(task_for(model), Lying)
    assert not list(sites.folder.rglob("predictions.csv"))


def _renamed(packed):
    """A first letter in which another party asks."""
    from weft.network.envelope_bytes import Hello, decode_envelope, encode
    from weft.protocol import pack, unpack

    envelope = decode_envelope(packed)
    if not isinstance(envelope, Hello):
        return packed
    plan = unpack(envelope.plan)
    plan["task"] = plan["task"].replace(f'"asker":"{ASKER}"', '"asker":"north"')
    return encode(Hello.of(envelope.run, pack(plan)))


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--network", "kit"], "--network needs --joint CONFIG, --party NAME and its --keys"),
        (["--network", "kit", "--joint", "study.toml", "--party", "south"], "and its --keys"),
        (["--resume", "p-1", "new.csv"], "--resume, and --party with --joint, are for --network"),
        (
            ["--network", "kit", "--joint", "study.toml", "--party", "south", "--keys", "keys"],
            "kit",
        ),
    ],
)
def test_what_cannot_be_asked_is_one_sentence(weft, tmp_path, model, options, words):
    model.save(tmp_path / "model.npz")
    code, out, err = weft("predict", "model.npz", *options, "--out", "scores.csv")
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert words in err
    assert not (tmp_path / "scores.csv").exists()


@pytest.mark.parametrize("overlap", ["mean", "first"])
def test_a_party_that_asks_and_claims_columns_of_others_gets_nothing(
    tmp_path, files, keys, model, task_for, overlap
):
    """With zeros in the place of a column that others have, scores would tell theirs."""
    for name, path in files.items():
        held = pd.read_csv(path)
        held = held[held["id"].isin([f"n{row}" for row in range(10, 25)])]
        held.assign(**({"b": 0.0} if name == ASKER else {})).to_csv(path, index=False)
    model = replace(model, overlap=overlap)
    sites = sites_of(tmp_path, files, keys, model, terms=CAREFUL)
    with pytest.raises(WeftError, match="of which the party that asks brings columns of its too"):
        sites.ask(task_for(model))


@pytest.mark.parametrize(
    ("signer", "run"), [("west", "p-1"), (ASKER, "p-2"), (None, "")], ids=["other", "old", "none"]
)
def test_only_the_party_that_asks_can_hand_a_question_in(sites, keys, model, signer, run):
    """Not a submitter or a coordinator in its name, and not with a question of an earlier run."""
    asked = unsigned(model)
    if signer is not None:
        asked = sign_prediction(asked, run, keys[signer].identity)
    with pytest.raises(WeftError, match="is not signed with the keys of 'south'"):
        sites.ask(asked)
    assert not list(sites.folder.rglob("predictions.csv"))


def test_all_that_is_asked_is_signed(sites, keys, model, task_for):
    changed = msgspec.structs.replace(task_for(model), parties=("south", "north", "west"))
    with pytest.raises(WeftError, match="is not signed with the keys of 'south'"):
        sites.ask(changed)


def test_a_coordinator_cannot_choose_what_counts_for_a_cell_of_two(files, model):
    """Scores under mean and sum differ by a cell that two parties hold."""
    tiles, lying = tiles_of(files, model), replace(model, overlap="sum")
    parties = {
        name: JointParty(name, held, model, keys, "pad")
        for (name, held), keys in zip(tiles.items(), ephemeral_keys(tiles).values(), strict=True)
    }
    channel = LocalChannel({name: party.on for name, party in parties.items()}, record=False)
    with pytest.raises(ProtocolError, match="was told that overlap = 'sum', but the model was tr"):
        sum_scores(channel, model=model.fingerprint, width=3, cipher="pad", overlap=lying.overlap)


def test_parties_made_anew_hide_under_other_pads_what_another_question_asks(files, keys, model):
    """Else a coordinator that asks otherwise after an interruption reads how parts differ."""
    tiles, memories = tiles_of(files, model), {name: {} for name in CUTS}

    def hidden_parts(matching):
        """Words of what all parties send, made anew over their memories."""
        words = []

        def noted(party, phase, message):
            reply = party.on(phase, message)
            if phase.name == "joint.partial":
                words.append(words_of(read_block(reply.z, "a block"), "a block").ravel())
            return reply

        calls = {
            name: partial(
                noted, JointParty(name, tiles[name], model, keys[name], "pad", memory=memory)
            )
            for name, memory in memories.items()
        }
        sum_scores(
            LocalChannel(calls, record=False), model=model.fingerprint, width=3, cipher="pad",
            overlap=model.overlap, matching=matching, run=bytes(16),
        )  # fmt: skip
        return np.concatenate(words)

    first = hidden_parts("hmac")
    assert np.array_equal(hidden_parts("hmac"), first)
    # The same samples and scores: under the same pads all words would be the same.
    assert not (hidden_parts("oprf") == first).any()


def again(sites):
    """Another run at the same sites: the last one is gone from their journals, not the ledgers."""
    for place in ("coordinator", "sites", "saved"):
        shutil.rmtree(sites.folder / place, ignore_errors=True)
    return sites


def test_scores_of_all_predictions_are_counted_over_restarts(
    tmp_path, files, keys, model, task_for
):
    """North shows twenty samples times three scores at a time, of a hundred in all."""
    sites = sites_of(tmp_path, files, keys, model, {"north": asked_by(most_scores=100)})
    sites.ask(task_for(model), Killing)
    (asked,) = Ledger(tmp_path / "ledger-north").book("north").read().questions()
    assert (asked.asker, asked.samples, asked.scores) == ("south", 20, 60)
    assert asked.company == tuple(CUTS)
    with pytest.raises(WeftError, match="north refuses further scores of its samples"):
        again(sites).ask(task_for(model))
    # What was refused counts for nothing.
    assert len(Ledger(tmp_path / "ledger-north").book("north").read().questions()) == 1


def test_cells_of_two_parties_are_scored_in_one_company_only(
    tmp_path, files, keys, model, task_for
):
    """North and west both have the first column; without west, north's own values would count."""
    sites = sites_of(tmp_path, files, keys, model, terms=CAREFUL)
    for path in files.values():
        held = pd.read_csv(path)
        held[held["id"].isin([f"n{row}" for row in range(10, 25)])].to_csv(path, index=False)
    sites.ask(task_for(model))
    with pytest.raises(WeftError, match="scored with other parties before"):
        again(sites).ask(task_for(model, parties=("west", "north", "south")))
    assert (again(sites).ask(task_for(model)) / "sealed_scores.msgpack").exists()


#: Columns of four parties, of which no two hold the same.
APART = {"south": "cd", "north": "a", "west": "ef", "east": "bg"}


@pytest.fixture
def scores_of(tmp_path):
    """Scores of some rows, which south asks for in some company; also the model and all cells."""
    rng = np.random.default_rng(0)
    cells = pd.DataFrame(rng.normal(size=(30, 7)), columns=list("abcdefg"))
    model = Model(
        np.array(list("abcdefg"), dtype=object), rng.normal(size=(1, 7)), np.zeros(1),
        np.array(["x", "y"]), (np.zeros(7), np.ones(7)), "logistic", {}, 0.1, {},
    )  # fmt: skip
    (tmp_path / "got" / "trained").mkdir(parents=True)
    model.save(tmp_path / "got" / "trained" / "model.npz")
    keys = ephemeral_keys(tuple(APART))
    files = {name: tmp_path / f"{name}.csv" for name in APART}
    new, got = (
        {name: (path,) for name, path in files.items()},
        dict.fromkeys(APART, tmp_path / "got"),
    )
    sites = MemberSites(tmp_path, keys, terms=CAREFUL, new=new, models=got)

    def scores(*company, rows=range(30)):
        for name, columns in APART.items():
            told = cells.iloc[list(rows)][list(columns)]
            told.insert(0, "id", [f"n{row}" for row in rows])
            told.to_csv(files[name], index=False)
        asked = unsigned(model, parties=("south", *company))
        returned = again(sites).ask(sign_prediction(asked, "p-1", keys["south"].identity))
        return read_scores(returned, keys["south"].identity, model).scores[:, 0]

    return scores, model, cells


def test_no_sample_is_scored_in_two_companies(scores_of):
    """Scores of three companies of three would be equations about each party's own part."""
    scores, model, cells = scores_of
    found = scores("north", "west", "east")
    assert np.abs(found - cells.to_numpy() @ model.coef[0]).max() < 1e-9
    for company in (("north", "west"), ("north", "east"), ("west", "east")):
        with pytest.raises(WeftError, match="refuses scores of samples that were scored with oth"):
            scores(*company)
    # With the same parties as often as one likes, whoever is named first.
    assert np.abs(scores("west", "east", "north") - found).max() < 1e-9


def test_other_samples_are_scored_in_other_companies(scores_of):
    scores, *_ = scores_of
    scores("north", "west", rows=range(15))
    scores("north", "east", rows=range(15, 30))
    with pytest.raises(WeftError, match="refuses scores of samples that were scored with other"):
        scores("north", "east", rows=range(14, 30))


def test_a_sample_of_two_parties_alone_is_not_scored(scores_of):
    """The one that asks would read the other's part at once."""
    scores, *_ = scores_of
    with pytest.raises(WeftError, match="shares with one other party"):
        scores("north")
