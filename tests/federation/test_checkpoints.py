"""Checkpoints: a resumed run goes on with the same bits, and a full disk loses nothing."""

from __future__ import annotations

import errno
import os
import stat
from dataclasses import asdict

import numpy as np
import pytest

from covering import before_release, every_value
from small_federations import rough_curvature
from weft.crypto.ciphers.block_format import KIND_CODES, read_block
from weft.data import Tile
from weft.errors import ConfigError, WeftError
from weft.federation.local_federation import Federation, Preprocessing
from weft.solvers.solver_interfaces_and_results import Checkpointing
from weft.storage import atomic_files as storage

PREPARATION = Preprocessing(intercept=True)
#: With rows as ``theory`` needs them.
UNIT_ROWS = Preprocessing(intercept=True, unit_rows=True)


class PowerCutError(Exception):
    """Not one of Weft's own errors."""


def cut_after(iteration):
    def progress(record):
        if record.iteration == iteration:
            raise PowerCutError

    return progress


def train(tiles, settings, folder=None, *, every=4, resume=False, progress=None, record=False):
    """A run that also keeps what every party held after each iteration."""
    how = UNIT_ROWS if settings.local == "theory" else PREPARATION
    federation = Federation(tiles, how, store=folder, record=record)
    checkpointing = Checkpointing(folder, every, resume) if folder else None
    held = {}

    def look(entry):
        held[entry.iteration] = {
            name: (party._half.w.copy(), party._half.alpha.copy())
            for name, party in federation.parties.items()
        }
        if progress is not None:
            progress(entry)

    with rough_curvature():
        trained = federation.train(settings, progress=look, checkpointing=checkpointing)
    trained.held = held
    return trained


def without_costs(history, *more):
    """Records without seconds and bytes: labels that are counted on compress a little otherwise."""
    gone = ("compute_seconds", "wall_seconds", "bytes_down", "bytes_up", *more)
    return [{k: v for k, v in asdict(record).items() if k not in gone} for record in history]


#: A pair in progress is given up at a resumption, so that certificates come at other times.
OF_PAIRS = ("primal", "dual", "gap", "certified_at", "gap_estimate", "round_trips")


def assert_same_run(one, other, *but):
    assert np.array_equal(one.model.coef, other.model.coef)
    assert np.array_equal(one.model.intercept, other.model.intercept)
    assert one.model.certificate == other.model.certificate
    assert one.result.certificate == other.result.certificate
    assert one.result.model_iteration == other.result.model_iteration
    assert one.result.stopped == other.result.stopped
    assert one.result.notes == other.result.notes
    assert without_costs(one.result.history, *but) == without_costs(other.result.history, *but)
    assert_same_weights(one, other)
    assert_no_contradiction(one, other)


def assert_same_weights(one, other):
    """All parties hold the same bits after every iteration that both runs went through."""
    common = one.held.keys() & other.held.keys()
    assert len(common) == min(len(one.held), len(other.held))
    for iteration in common:
        for name, found in one.held[iteration].items():
            for a, b in zip(found, other.held[iteration][name], strict=True):
                assert np.array_equal(a, b), (iteration, name)


def assert_no_contradiction(one, other):
    """What both runs say of the same pair is the same."""
    said = {r.certified_at: (r.primal, r.dual, r.gap) for r in one.result.history}
    for record in other.result.history:
        if record.certified_at in said:
            assert said[record.certified_at] == (record.primal, record.dual, record.gap)


@every_value(local=["safe", "practical", "theory"], participation=["everyone", 0.5], classes=[2, 3])
def test_a_resumed_run_has_the_same_bits_as_one_that_was_never_interrupted(
    patchwork, quick, tmp_path, local, participation, classes
):
    tiles = patchwork(classes=classes, unlabelled=("east",))
    settings = quick(local=local, participation=participation, iterations=12, certify_every=3)
    whole = train(tiles, settings, tmp_path / "whole", every=2)
    cut, folder = 4 if local == "safe" else 8, tmp_path / "cut"
    with pytest.raises(PowerCutError):
        train(tiles, settings, folder, every=2, progress=cut_after(cut))
    resumed = train(tiles, settings, folder, every=2, resume=True)
    assert min(resumed.held) == cut - 1
    assert resumed.result.certificate.iteration == 12
    assert_same_run(whole, resumed, *(() if participation == "everyone" else OF_PAIRS))


# With every change epochs of several resumptions are in test_no_reuse.py.
@pytest.mark.release
def test_a_run_resumed_twice_has_the_same_bits_too(patchwork, quick, tmp_path):
    settings = quick(participation=0.5, iterations=20, certify_every=2)
    plain = train(patchwork(), settings)
    for resume, cut in ((False, 7), (True, 13)):
        with pytest.raises(PowerCutError):
            train(patchwork(), settings, tmp_path, every=3, resume=resume, progress=cut_after(cut))
    resumed = train(patchwork(), settings, tmp_path, every=3, resume=True)
    assert_same_run(plain, resumed, *OF_PAIRS)


def test_a_run_resumed_from_its_last_iteration_trains_no_further(patchwork, quick, tmp_path):
    settings = quick(participation=0.5, iterations=12)
    whole = train(patchwork(), settings, tmp_path, every=4)
    resumed = train(patchwork(), settings, tmp_path, every=4, resume=True)
    assert len(resumed.result.history) == 12
    assert not resumed.held
    assert_same_run(whole, resumed, "round_trips")


def test_a_run_resumed_after_lost_replies_has_the_same_bits(patchwork, simulate, quick, tmp_path):
    """The checkpoint is taken while a party holds a step that the coordinator never got."""
    settings = quick(iterations=14)

    def plan(phase, party, call):
        return "lost" if (phase, party, call) == ("hyfdca.step", "west", 6) else None

    whole = simulate(patchwork(), settings, PREPARATION, plan=plan, store=tmp_path)
    whole.go(checkpointing=Checkpointing(tmp_path, 100))
    again = simulate(patchwork(), settings, PREPARATION, plan=plan, store=tmp_path)
    with pytest.raises(PowerCutError):
        again.go(progress=cut_after(9), checkpointing=Checkpointing(tmp_path, 6))
    resumed = simulate(patchwork(), settings, PREPARATION, store=tmp_path)
    resumed.go(checkpointing=Checkpointing(tmp_path, 100, resume=True))
    assert np.array_equal(whole.model().coef, resumed.model().coef)
    assert whole.result.certificate == resumed.result.certificate


@pytest.mark.parametrize("cipher", ["pad", *before_release("plain")])
def test_every_resumption_goes_on_in_a_later_epoch(patchwork, quick, tmp_path, cipher):
    """Else labels would come again, and with them pads that were used."""
    settings = quick(participation=0.5, iterations=10, certify_every=2, cipher=cipher)
    for epoch, cut in enumerate((3, 5, None)):
        arguments = {"every": 2, "resume": epoch > 0, "record": True}
        if cut is not None:
            with pytest.raises(PowerCutError):
                train(patchwork(), settings, tmp_path, progress=cut_after(cut), **arguments)
            continue
        trained = train(patchwork(), settings, tmp_path, **arguments)
        found = {
            read_block(value, field).pad_id >> 52
            for entry in trained.channel.transcript
            if entry.phase.startswith(("hyfdca.", "certify."))
            for message in (entry.message, entry.reply)
            for field, value in message.items()
            if field in KIND_CODES
        }
        assert found == {epoch}
        assert (tmp_path / "epoch.txt").read_text() == f"{epoch}\n"


def test_a_folder_whose_run_was_resumed_serves_another_run_too(patchwork, quick, tmp_path):
    """Epochs are counted for every run anew, since each has keys of its own."""
    settings = quick(iterations=6)
    whole = train(patchwork(), settings)
    for _ in range(2):
        for resume in (False, True):
            with pytest.raises(PowerCutError):
                train(patchwork(), settings, tmp_path, resume=resume, progress=cut_after(5))
    assert_same_run(whole, train(patchwork(), settings, tmp_path, resume=True))


@pytest.mark.parametrize("name", ["epoch.txt", "north.0.epoch"])
def test_a_damaged_note_of_the_epoch_gives_one_sentence(patchwork, quick, tmp_path, name):
    settings = quick(iterations=2)
    train(patchwork(), settings, tmp_path, every=2)
    train(patchwork(), settings, tmp_path, every=2, resume=True)
    (tmp_path / name).write_text("seven")
    with pytest.raises(WeftError, match=rf"{name}.*without --resume") as caught:
        train(patchwork(), settings, tmp_path, every=2, resume=True)
    assert "\n" not in str(caught.value)


PARTIES = ("east", "north", "south", "west")


def test_checkpoints_are_for_their_owner_only_and_older_sets_are_deleted(
    patchwork, quick, tmp_path
):
    def names():
        for path in tmp_path.iterdir():
            assert stat.S_IMODE(path.stat().st_mode) == 0o600, path
        return sorted(path.name for path in tmp_path.iterdir())

    with pytest.raises(PowerCutError):
        train(patchwork(), quick(iterations=13), tmp_path, every=4, progress=cut_after(9))
    assert names() == sorted(["coordinator.npz", "epoch.txt", *(f"{p}.8.npz" for p in PARTIES)])
    train(patchwork(), quick(iterations=13), tmp_path, every=4, resume=True)
    # What a party notes of epochs outlasts its older checkpoints.
    own = [name for p in PARTIES for name in (f"{p}.12.npz", f"{p}.0.epoch")]
    assert names() == sorted(["coordinator.npz", "epoch.txt", *own])


def test_checkpoints_of_parties_whose_names_begin_alike_do_not_delete_each_other(
    table, quick, tmp_path
):
    whole = table()
    tiles = {
        name: (Tile.make(whole.ids, whole.features[c], whole.block[:, c], whole.labels),)
        for name, c in (("north", slice(0, 3)), ("north.west", slice(3, 5)), ("n*", slice(5, 7)))
    }
    train(tiles, quick(iterations=9), tmp_path, every=4)
    names = ["coordinator.npz", "epoch.txt", "n*.8.npz", "north.8.npz", "north.west.8.npz"]
    assert sorted(path.name for path in tmp_path.iterdir()) == names
    train(tiles, quick(iterations=9), tmp_path, every=4, resume=True)
    names += ["n*.0.epoch", "north.0.epoch", "north.west.0.epoch"]
    assert sorted(path.name for path in tmp_path.iterdir()) == sorted(names)


#: A checkpoint writes a file for each of four parties, one for the coordinator, and its epoch.
FULL_DISKS = {
    "a party": ("write_arrays", 5),
    "a later party": ("write_arrays", 7),
    "coordinator": ("write_arrays", 9),
    "the first epoch, moved": ("replace", 5),
    "a party, moved": ("replace", 6),
    "a later party, moved": ("replace", 8),
    "coordinator, moved": ("replace", 10),
    "epoch, moved": ("replace", 11),
}


@pytest.fixture(scope="module")
def undisturbed(patchwork, quick, tmp_path_factory):
    """Settings, and a run with them to whose end every disk had room."""
    settings = quick(iterations=10, participation=0.5)
    return settings, train(patchwork(), settings, tmp_path_factory.mktemp("whole"))


@pytest.mark.parametrize(
    "full_at",
    [
        *("a later party", "coordinator", "epoch, moved"),
        *before_release("a party", "a party, moved", "a later party, moved", "coordinator, moved"),
        *before_release("the first epoch, moved"),
    ],
)
def test_a_full_disk_gives_one_sentence_and_leaves_the_older_checkpoint_usable(
    patchwork, undisturbed, tmp_path, monkeypatch, full_at
):
    place, good_writes = FULL_DISKS[full_at]
    settings, whole = undisturbed
    owner = storage if place == "write_arrays" else storage.os
    original, writes = getattr(owner, place), []

    def full(*arguments, **arrays):
        writes.append(1)
        if len(writes) > good_writes:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        return original(*arguments, **arrays)

    folder = tmp_path / "cut"
    with monkeypatch.context() as patch:
        patch.setattr(owner, place, full)
        with pytest.raises(WeftError, match=r"No space left .*free space") as caught:
            train(patchwork(), settings, folder)
    assert "\n" not in str(caught.value)
    assert not [p for p in folder.iterdir() if p.name.endswith(".tmp")]
    resumed = train(patchwork(), settings, folder, resume=True)
    assert_same_run(whole, resumed, *OF_PAIRS)


@pytest.mark.parametrize(
    "change", [{"seed": 9}, *before_release({"lam": 0.1}, {"local": "practical"})]
)
def test_resuming_with_other_settings_is_refused(patchwork, quick, tmp_path, change):
    train(patchwork(), quick(iterations=5), tmp_path)
    with pytest.raises(ConfigError, match="belongs to other settings or parties"):
        train(patchwork(), quick(iterations=5, **change), tmp_path, resume=True)


def test_resuming_with_other_parties_is_refused(patchwork, quick, tmp_path):
    train(patchwork(), quick(iterations=5), tmp_path)
    tiles = patchwork()
    tiles["winter"] = tiles.pop("west")
    with pytest.raises(ConfigError, match="belongs to other settings or parties"):
        train(tiles, quick(iterations=5), tmp_path, resume=True)


def test_resuming_without_a_checkpoint_is_refused(patchwork, quick, tmp_path):
    with pytest.raises(ConfigError, match="there is no checkpoint in"):
        train(patchwork(), quick(), tmp_path, resume=True)


def test_resuming_without_the_file_of_one_party_names_it(patchwork, quick, tmp_path):
    train(patchwork(), quick(iterations=5), tmp_path)
    (tmp_path / "south.4.npz").unlink()
    with pytest.raises(WeftError, match=r"south.*south\.4\.npz"):
        train(patchwork(), quick(iterations=5), tmp_path, resume=True)


def test_a_damaged_checkpoint_gives_one_sentence(patchwork, quick, tmp_path):
    train(patchwork(), quick(iterations=5), tmp_path)
    path = tmp_path / "coordinator.npz"
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(WeftError, match=r"coordinator\.npz|checkpoint"):
        train(patchwork(), quick(iterations=5), tmp_path, resume=True)


def test_a_party_without_a_folder_says_so_at_the_first_checkpoint(patchwork, quick, tmp_path):
    federation = Federation(patchwork(), PREPARATION)
    with pytest.raises(WeftError, match="party north has no folder for checkpoints"):
        federation.train(quick(), checkpointing=Checkpointing(tmp_path, 2))


def test_a_checkpoint_is_skipped_with_a_note_while_a_party_is_away(
    patchwork, simulate, quick, tmp_path
):
    def plan(phase, party, call):
        return "dead" if (phase, party, call) == ("checkpoint", "east", 2) else None

    settings = quick(iterations=9, norms="sample")
    simulation = simulate(patchwork(), settings, PREPARATION, plan=plan, store=tmp_path)
    result = simulation.go(checkpointing=Checkpointing(tmp_path, 4))
    assert any("iteration 8: east failed" in note for note in result.notes)
    assert (tmp_path / "east.4.npz").exists()
    resumed = train(patchwork(), settings, tmp_path, resume=True)
    assert np.array_equal(simulation.model().coef, resumed.model.coef)
