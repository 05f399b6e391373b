"""No pad, no mask and no ciphertext is ever used twice, whatever crashes and is resumed.

Runs are cut by power failures at drawn moments (after an iteration, or while a party answers),
replies get lost, and parties and coordinator go on from their checkpoints as new processes would.
Everything that left a party is logged with the names of what hid it.
"""

from __future__ import annotations

import shutil
from collections import defaultdict
from contextlib import contextmanager, suppress
from hashlib import shake_256
from pathlib import Path
from tempfile import TemporaryDirectory
from unittest.mock import patch

import numpy as np
import pytest
from hypothesis import HealthCheck, Phase, example, given, settings
from hypothesis import strategies as st

from covering import before_release, changing, some_of
from interposed import (
    HIDING,
    LOCALS,
    PARTICIPATIONS,
    Middle,
    blocks_in,
    body_at,
    cut,
    header_of,
    interpose,
    outcome,
    quick,
    train,
)
from weft.crypto import scalar_masks as masks_module
from weft.crypto.ciphers.bfv_by_seal import _BODY, _FRESH
from weft.crypto.ciphers.block_format import TAG, pad_id_of
from weft.crypto.ciphers.chunk_layout import CHECKS
from weft.crypto.ciphers.party_cipher import Cipher
from weft.crypto.keys import ephemeral_keys
from weft.crypto.scalar_masks import Masks
from weft.errors import ProtocolError, WeftError
from weft.protocol import phase_named
from weft.solvers.solver_interfaces_and_results import Checkpointing

ITERATIONS = 6
#: Phases in which a party may fall silent.
PHASES = ("hyfdca.weights", "hyfdca.step", "hyfdca.dual", "hyfdca.again", "certify.")
#: Bytes of one ciphertext on its way up, by cipher.
CIPHERTEXT = {"pad": 8, "bfv": 1 + _BODY[_FRESH], "paillier": 128}


class PowerCut(BaseException):
    """No handler in Weft catches this."""


class Watch(Middle):
    """Logs every label and mask that was used, with what was sent under it.

    Parameters
    ----------
    cut_at
        Number of a party's call, and whether the power fails before or after it works; None: never.
    lose
        Numbers of calls whose reply gets lost.
    """

    def __init__(self, cut_at=None, lose=()):
        super().__init__()
        self.cut_at = cut_at
        self.lose = frozenset(lose)
        self.calls = 0
        self.blocks = []
        self.labels = []
        self.masks = []
        self._pending = []
        self._field = ""

    def down(self, phase, party, message):
        if phase.startswith(PHASES):
            self.calls += 1
            if self.cut_at == (self.calls, "before"):
                raise PowerCut
        self._pending.clear()
        return message

    def up(self, phase, party, message, reply):
        for kind, packed in blocks_in(reply).items():
            self.blocks.append((party, kind, packed))
        for name, field in self._pending:
            self.masks.append((name, party, reply[field]))
        if phase.startswith(PHASES):
            if self.cut_at == (self.calls, "after"):
                raise PowerCut
            if self.calls in self.lose:
                raise ConnectionError("the reply was lost")
        return reply

    @contextmanager
    def watching(self):
        """Log what ciphers and masks do."""
        watch, sum_ = self, Masks.sum

        def logged(method):
            def call(cipher, sent, *arguments):
                packed = method(cipher, sent, *arguments)
                if cipher.name != "plain":
                    watch.labels.append((cipher.key, cipher.party, sent.kind, cipher.pad_id))
                    assert header_of(packed)["label"] == cipher.pad_id
                return packed

            return call

        def sum_logged(masks, question, *arguments):
            watch._field = question.field
            return sum_(masks, question, *arguments)

        def stream(name):
            """What makes a mask: the secret of the pair, and what it is for."""
            watch._pending.append((bytes(name), watch._field))
            return shake_256(name)

        with (
            patch.object(Cipher, "contribute", logged(Cipher.contribute)),
            patch.object(Cipher, "propose", logged(Cipher.propose)),
            patch.object(Cipher, "post", logged(Cipher.post)),
            patch.object(Masks, "sum", sum_logged),
            patch.object(masks_module, "shake_256", stream),
            interpose(self),
        ):
            yield self


def assert_nothing_was_used_twice(watches, cipher):
    labels = [label for watch in watches for label in watch.labels]
    assert labels
    assert len(set(labels)) == len(labels), "a label was used twice"
    contents = defaultdict(set)
    for watch in watches:
        for *name, content in watch.masks:
            contents[tuple(name)].add(content)
    assert contents
    assert all(len(found) == 1 for found in contents.values()), "a mask hid two different values"
    blocks = [packed for watch in watches for _, _, packed in watch.blocks]
    bodies = [packed[body_at(packed) :] for packed in blocks]
    bodies = [body for body in bodies if body]
    assert bodies
    assert len(set(bodies)) == len(bodies), "two blocks are equal"
    if cipher != "pad":
        size = CIPHERTEXT[cipher]
        if cipher == "bfv":
            # Check words of every chunk travel in front.
            front = 8 * CHECKS
            bodies = [body[front * (len(body) // (size + front)) :] for body in bodies]
        else:
            # A tag of every slot follows.
            ends = [len(packed) - TAG * header_of(packed)["count"] for packed in blocks]
            bodies = [p[body_at(p) : end] for p, end in zip(blocks, ends, strict=True)]
        every = [body[i : i + size] for body in bodies for i in range(0, len(body), size)]
        assert all(len(one) == size for one in every)
        assert len(set(every)) == len(every), "two ciphertexts are equal"


# ── crashes and resumptions ───────────────────────────────────────────────────────────────────

AFTER_AN_ITERATION = st.tuples(st.just("iteration"), st.integers(1, ITERATIONS))
IN_A_PHASE = st.tuples(
    st.just("call"), st.tuples(st.integers(1, 60), st.sampled_from(["before", "after"]))
)
CRASHES = st.lists(st.one_of(AFTER_AN_ITERATION, IN_A_PHASE), min_size=1, max_size=3)
SCHEDULES = {
    "crashes": CRASHES,
    "lose": st.sets(st.integers(1, 60), max_size=3),
    "every": st.integers(1, 3),
    "local": st.sampled_from(LOCALS),
    "participation": st.sampled_from(PARTICIPATIONS),
}


def crash_and_resume(cipher, crashes, lose, every, local, participation, name="hybrid 2×2"):
    """Run until it is done; returns a log per process, and the result."""
    settings = quick(cipher=cipher, local=local, participation=participation, iterations=ITERATIONS)
    split, watches, trained = cut(name), [], None
    with TemporaryDirectory() as folder:
        folder = Path(folder)
        for what, when in [*crashes, ("never", None)]:
            watch = Watch(when if what == "call" else None, lose)
            watches.append(watch)
            resume = (folder / "coordinator.npz").exists()

            def progress(record, what=what, when=when):
                if what == "iteration" and record.iteration == when:
                    raise PowerCut

            with watch.watching():
                try:
                    trained = train(
                        split,
                        settings,
                        store=folder,
                        progress=progress,
                        checkpointing=Checkpointing(folder, every, resume),
                    )
                    break
                except PowerCut:
                    continue
                except ProtocolError as error:
                    # One way to stop that asks for a resumption.
                    if "resume from the last checkpoint" not in str(error):
                        raise
    return watches, trained


def assert_epochs_rise(watches):
    """A key that is used again after a crash is used in later epochs only."""
    newest = {}
    for watch in watches:
        epochs = defaultdict(set)
        for key, _, _, label in watch.labels:
            epochs[key].add(label >> 52)
        for key, found in epochs.items():
            assert min(found) > newest.get(key, -1)
            assert len(found) == 1
            newest[key] = max(found)


@settings(max_examples=2 if changing() else 5, suppress_health_check=[HealthCheck.too_slow])
@given(**SCHEDULES)
@example(
    crashes=[("iteration", 3), ("iteration", 3), ("iteration", 5)],
    lose=(),
    every=2,
    local="safe",
    participation="everyone",
)
def test_pads_and_masks_are_used_once_over_crashes_and_resumptions(
    crashes, lose, every, local, participation
):
    watches, trained = crash_and_resume("pad", crashes, lose, every, local, participation)
    assert_nothing_was_used_twice(watches, "pad")
    assert_epochs_rise(watches)
    assert len(trained.result.history) == ITERATIONS
    if not lose:
        clear = quick(
            cipher="plain", local=local, participation=participation, iterations=ITERATIONS
        )
        whole = train(cut("hybrid 2×2"), clear)
        assert np.array_equal(trained.model.coef, whole.model.coef)


@pytest.mark.parametrize("cipher", ["bfv", "paillier"])
@settings(
    max_examples=1,
    suppress_health_check=[HealthCheck.too_slow],
    phases=[Phase.explicit, *(() if changing() else (Phase.generate,))],
)
@given(**SCHEDULES)
@example(
    crashes=[("iteration", 3)],
    lose=(),
    every=2,
    local="safe",
    participation="everyone",
)
def test_no_ciphertext_comes_twice_over_crashes_and_resumptions(
    cipher, crashes, lose, every, local, participation
):
    watches, _ = crash_and_resume(cipher, crashes[:2], lose, every, local, participation)
    assert_nothing_was_used_twice(watches, cipher)
    assert_epochs_rise(watches)


@pytest.mark.parametrize("cipher", some_of(HIDING, "pad"))
def test_the_same_seed_run_twice_sends_no_equal_block(cipher):
    """Of lattices and Paillier, equal values are never sent alike: see the test of that name."""
    watches = [Watch(), Watch()]
    for watch in watches:
        with watch.watching():
            train(cut("hybrid 2×2"), quick(cipher=cipher, iterations=1))
    assert_nothing_was_used_twice(watches, cipher)
    sent = [{content for *_, content in watch.masks} for watch in watches]
    assert not sent[0] & sent[1]


@pytest.mark.parametrize("cipher", HIDING)
def test_equal_values_are_never_sent_alike(cipher):
    """At convergence parties send zeros only: increments of nothing."""
    split = cut("horizontal")
    watch = Watch()
    with watch.watching():
        train(split, quick(cipher=cipher, loss="squared", lam=100.0, iterations=4, iic=1.0))
    assert_nothing_was_used_twice([watch], cipher)


def test_runs_under_the_same_keys_send_no_equal_block():
    """Keys from files serve many runs: every run has pads of its own."""
    split = cut("hybrid 2×2")
    keys = ephemeral_keys(tuple(split.parties))
    watches = [Watch(), Watch()]
    for watch in watches:
        with watch.watching():
            train(split, quick(iterations=2), keys=keys)
    blocks = [packed[body_at(packed) :] for w in watches for *_, packed in w.blocks]
    assert len(set(blocks)) == len(blocks)
    labels = [label for watch in watches for label in watch.labels]
    assert len(set(labels)) == len(labels)


def test_runs_under_the_same_keys_hide_their_scalars_under_different_masks():
    split = cut("hybrid 2×2")
    keys = ephemeral_keys(tuple(split.parties))
    contents = defaultdict(set)
    for lam in (0.05, 0.5):
        watch = Watch()
        with watch.watching():
            train(split, quick(iterations=2, lam=lam), keys=keys)
        for *name, content in watch.masks:
            contents[tuple(name)].add(content)
    assert all(len(found) == 1 for found in contents.values())


# ── epochs ────────────────────────────────────────────────────────────────────────────────────


def run_until(iteration, parties, coordinator, *, resume, every=2, watch=None):
    def progress(record):
        if record.iteration == iteration:
            raise PowerCut

    with (watch or Watch()).watching():
        return train(
            cut("hybrid 2×2"),
            quick(iterations=ITERATIONS, cipher="pad"),
            store=parties,
            progress=progress,
            checkpointing=Checkpointing(coordinator, every, resume),
        )


def test_parties_refuse_an_epoch_that_they_have_used(tmp_path):
    """The coordinator's folder comes back from a backup; the parties remember."""
    parties, folder, backup = (tmp_path / name for name in ("parties", "coordinator", "backup"))
    with pytest.raises(PowerCut):
        run_until(3, parties, folder, resume=False)
    shutil.copytree(folder, backup)
    with pytest.raises(PowerCut):
        run_until(3, parties, folder, resume=True)
    shutil.rmtree(folder)
    shutil.copytree(backup, folder)
    watch = Watch()
    with pytest.raises(WeftError, match=r"party r1c1: epoch 1 of this run was used before") as e:
        run_until(0, parties, folder, resume=True, watch=watch)
    assert "\n" not in str(e.value)
    # Nobody sent anything under the old keys.
    assert {label >> 52 for *_, label in watch.labels} <= {0}
    # Counting on from there helps: the next epoch is a new one.
    run_until(0, parties, folder, resume=True)


def test_parties_remember_their_epoch_over_the_next_checkpoint(tmp_path):
    parties, folder = tmp_path / "parties", tmp_path / "coordinator"
    watches = []

    def go_on(iteration, resume):
        watches.append(Watch())
        with pytest.raises(PowerCut):
            run_until(iteration, parties, folder, resume=resume, watch=watches[-1])

    go_on(3, False)
    stale = (folder / "epoch.txt").read_text()
    go_on(5, True)
    # The coordinator's note of the last epoch is that of an older backup.
    (folder / "epoch.txt").write_text(stale)
    watches.append(Watch())
    with pytest.raises(WeftError):
        run_until(0, parties, folder, resume=True, watch=watches[-1])
    assert_nothing_was_used_twice(watches, "pad")


def test_a_resumed_run_counts_its_epochs_up(tmp_path):
    found = []
    for cut_at, resume in ((3, False), (3, True), (5, True), (0, True)):
        watch = Watch()
        with suppress(PowerCut):
            run_until(cut_at, tmp_path, tmp_path, resume=resume, watch=watch)
        found.append(max(label >> 52 for *_, label in watch.labels))
    assert found == [0, 1, 2, 3]


# ── requests that come again ──────────────────────────────────────────────────────────────────


class Again(Middle):
    """Puts every request to its party a second time, as it was or changed."""

    def __init__(self, change=lambda message: message, phases=""):
        super().__init__()
        self.change = change
        self.phases = phases
        self.answers = []

    def up(self, phase, party, message, reply):
        if "round" in message and phase.startswith(self.phases):
            try:
                asked = phase_named(phase)
                again = asked.read_request(self.change(message))
                self.answers.append((phase, self.parties[party].on(asked, again)))
            except Exception as error:
                self.answers.append((phase, error))
        return reply


@pytest.mark.parametrize("cipher", ["pad", *before_release("bfv", "paillier")])
def test_a_request_that_comes_again_is_refused(cipher):
    again = Again()
    with interpose(again):
        trained = train(cut("hybrid 2×2"), quick(cipher=cipher, participation=0.5, iterations=3))
    assert len({phase for phase, _ in again.answers}) > 5
    for _, answer in again.answers:
        assert isinstance(answer, ProtocolError)
        assert "a message was repeated" in str(answer)
        assert "\n" not in str(answer)
    clear = train(cut("hybrid 2×2"), quick(cipher="plain", participation=0.5, iterations=3))
    assert outcome(trained) == outcome(clear)


@pytest.mark.parametrize("number", some_of([0, -1, 1, 1.5, "7", True], 0, -1, "7"), ids=repr)
def test_a_request_whose_number_is_no_new_number_is_refused(number):
    again = Again(lambda message: {**message, "round": number})
    with interpose(again):
        train(cut("hybrid 2×2"), quick(iterations=1))
    training = [answer for phase, answer in again.answers if phase.startswith("hyfdca.")]
    assert training
    assert all(isinstance(answer, WeftError) for answer in training)


def test_a_request_without_a_number_is_refused():
    again = Again(lambda m: {k: v for k, v in m.items() if k != "round"}, "hyfdca.dual")
    watch = Watch()
    with watch.watching(), interpose(again), suppress(WeftError):
        train(cut("hybrid 2×2"), quick(iterations=3, local="practical", certify_every=100))
    assert again.answers
    assert len(set(watch.labels)) == len(watch.labels)
    assert all(isinstance(answer, WeftError) for _, answer in again.answers)


def test_labels_are_numbers_that_never_meet():
    numbers = [
        pad_id_of(e, r, p)
        for e in (0, 1, (1 << 11) - 1)
        for r in (1, 2, (1 << 32) - 1)
        for p in (0, 1, (1 << 20) - 1)
    ]
    assert numbers == sorted(numbers)
    assert len(set(numbers)) == len(numbers)
    assert max(numbers) < 1 << 63
    for wrong in ((1 << 11, 1, 0), (0, 1 << 32, 0), (0, 1, 1 << 20), (0, 0, 0), (-1, 1, 0)):
        with pytest.raises(ProtocolError, match="start a new run"):
            pad_id_of(*wrong)
