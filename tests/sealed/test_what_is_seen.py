"""What a sealed run shows: uniform words, noisy scalars, and nothing twice."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from scipy.special import expit
from sealed_runs import CUTS, cut, held, table, train, weights

from weft.crypto.pads.pads_all_parties_know import OpeningPads
from weft.crypto.primitives import seeded_words as seeds
from weft.errors import ProtocolError
from weft.privacy.ledger.run_exposure import exposure_of
from weft.protocol import Nothing, phase_named
from weft.protocol.declared_message_fields import flat
from weft.protocol.field_visibility import Form
from weft.solvers.secret_sharing import dealer as dealing
from weft.solvers.secret_sharing import party as sealed_party
from weft.solvers.secret_sharing import party_answers_in_order, share_arithmetic
from weft.solvers.secret_sharing.messages import POINT, ScoresRequest
from weft.solvers.secret_sharing.party import SealedParty


@pytest.fixture(scope="module")
def run():
    return watched_run()


def watched_run():
    """A recorded run, all that parties opened in it, and the labels of all words drawn."""
    opened, drawn = [], Counter()
    with pytest.MonkeyPatch.context() as patch:
        take_off, read, words = OpeningPads.take_off, OpeningPads.read, seeds.seeded_words

        def taking(self, total, count, label):
            found = take_off(self, total, count, label)
            opened.append((self._party, label, found.copy()))
            return found

        def reading(self, padded, count, label, party):
            found = read(self, padded, count, label, party)
            opened.append((self._party, f"{label} {party}", found.copy()))
            return found

        def drawing(seed, label, *shape):
            drawn[seed, label, shape] += 1
            return words(seed, label, *shape)

        class Streaming(seeds.SeededStream):
            def __init__(self, seed, label):
                drawn[seed, label, "stream"] += 1
                super().__init__(seed, label)

        patch.setattr(OpeningPads, "take_off", taking)
        patch.setattr(OpeningPads, "read", reading)
        for module in (dealing, sealed_party, party_answers_in_order, share_arithmetic):
            patch.setattr(module, "seeded_words", drawing)
        for module in (dealing, share_arithmetic):
            patch.setattr(module, "SeededStream", Streaming)
        block, labels = table()
        tiles = cut(block, labels, CUTS["overlapping"])
        asked = {"lam": 0.1, "second_moments": ("hessian", "gram")}
        federation, trained = train(tiles, record=True, **asked)
    return federation, trained, opened, drawn, block, labels


def test_all_that_parties_open_is_uniform(run):
    _, _, opened, *_ = run
    assert len({label for _, label, _ in opened}) > 25
    # But for sums that guard the Hessian.
    words = [found for party, label, found in opened if party == 0 and not label.endswith("sums")]
    words = np.concatenate(words)
    # Numbers modulo 2^128 are opened in pieces, of which some have 32 bits only.
    whole = words[words >= 1 << 40]
    assert len(whole) > 1500
    for shift in (0, 20, 40, 56):
        counts = np.bincount(
            ((whole >> np.uint64(shift)) & np.uint64(15)).astype(int), minlength=16
        )
        expected = len(whole) / 16
        # χ² of 15 degrees of freedom: above 60 once in four million times.
        assert ((counts - expected) ** 2 / expected).sum() < 60


def test_what_travels_is_uniform_to_the_coordinator_too(run):
    _, trained, *_ = run
    found = []
    for entry in trained.channel.transcript:
        if not entry.phase.startswith("sealed."):
            continue
        phase = phase_named(entry.phase)
        for kind, said in ((phase.request, entry.message), (phase.reply, entry.reply)):
            forms = {name: field.meaning.form for name, field in flat(kind)}
            assert all(forms[name] is not Form.CLEAR for name in said)
            found += [said[n] for n in said if forms[n] is Form.MASKED]
    # What is opened is sent to every party, and counts once.
    words = np.unique(np.concatenate(found))
    counts = np.bincount((words >> np.uint64(60)).astype(int), minlength=16)
    expected = len(words) / 16
    assert ((counts - expected) ** 2 / expected).sum() < 60


def test_no_score_slope_or_weight_is_in_anything_that_a_party_opens(run):
    """Fixed point of what an honest party's attack would start from, in any opening of anybody."""
    _, trained, opened, _, block, labels = run
    secret = [weights(trained.model)[0], block.ravel(), labels - 0.5]
    small = np.concatenate([found for _, _, found in opened]).view(np.int64)
    for values in secret:
        for bits in (18, 28, 32, 46):
            words = np.rint(values * 2.0**bits).astype(np.int64)
            near = np.isin(small, words[np.abs(words) > 1 << 20])
            assert not near.any()


def test_every_seed_gives_every_word_once_for_the_dealer_and_once_or_twice_for_its_party(run):
    """The slopes' mask is made twice by its party, for one opening and the product with it."""
    *_, drawn, _, _ = run
    assert max(drawn.values()) <= 3
    names = Counter((seed, label) for seed, label, _ in drawn)
    assert max(names.values()) == 1, "one label was used for words of two shapes"


def test_the_ledger_counts_no_sum_of_a_sealed_run(run):
    federation, *_ = run
    for party in federation.parties.values():
        assert not exposure_of(party.view, party.sum_counter).reached
        assert exposure_of(party.view, party.sum_counter).sums == 0


def test_losses_and_products_carry_noise(run):
    """Two runs on the same table tell the coordinator other losses."""
    _, first, *_, block, labels = run
    _, second = train(cut(block, labels, CUTS["overlapping"]), lam=0.1)
    ours, theirs = first.result.certificate.primal[0], second.result.certificate.primal[0]
    assert ours != theirs
    assert abs(ours - theirs) < 1e-4


def test_sums_of_curvatures_carry_noise_of_every_party(run):
    """They are right, but for what four samples could add at each.

    Once in a thousand runs noise comes to less than rounding: not in two of them.
    """
    off = [off_by_noise(*each) for each in (run, watched_run())]
    assert 1e-3 < max(off) < len(run[0].parties)


def off_by_noise(federation, trained, opened, _, block, labels):
    """How far the sum of curvatures that all parties open is from the true one."""
    (sums,) = [found for party, label, found in opened if party == 0 and label.endswith("sums")]
    slopes = expit(held(block, CUTS["overlapping"]) @ weights(trained.model)[0])
    true, told = (slopes * (1 - slopes)).sum(), sums.view(np.int64)[0]
    half = half_of(federation)
    return abs(told * 2.0**-half._bend_digits - true)


def half_of(federation):
    return next(iter(federation.parties.values()))._half


def test_a_phase_is_answered_once_and_never_in_two_ways(run):
    federation, trained, *_ = run
    half = half_of(federation)
    assert isinstance(half, SealedParty)
    serial = half._serial
    for wrong in (serial, serial + 2, 1):
        message = ScoresRequest(round=10**6, serial=wrong, point=np.zeros(3, np.uint64))
        with pytest.raises(ProtocolError, match=r"two ways|out of turn"):
            half.phases()["sealed.scores"].handle(message)
    assert half._serial == serial
    # The last phase: the others have numbers that are past.
    entry = [e for e in trained.channel.transcript if e.phase.startswith("sealed.")][-1]
    assert entry.phase == "sealed.hessian"
    again = phase_named(entry.phase).read_request({**entry.message, "round": 10**6})
    half = federation.parties[entry.party]._half
    assert half.phases()[entry.phase].handle(again) == Nothing()
    again.error += 1
    with pytest.raises(ProtocolError, match="two ways"):
        half.phases()[entry.phase].handle(again)


def test_words_that_were_changed_on_the_way_are_refused(monkeypatch):
    block, labels = table()
    add = type(half_of(train(cut(block, labels, CUTS["vertical"]), gap=0.5)[0]))
    assert issubclass(add, SealedParty)
    take = OpeningPads.take_off

    def changed(self, total, count, label):
        total = total.copy()
        total[1] += np.uint64(1)
        return take(self, total, count, label)

    monkeypatch.setattr(OpeningPads, "take_off", changed)
    with pytest.raises(ProtocolError, match="changed on its way"):
        train(cut(block, labels, CUTS["vertical"]), gap=0.5)


def test_a_party_insists_on_noise_in_products(monkeypatch):
    from weft.solvers.secret_sharing import coordinator_lbfgs

    monkeypatch.setattr(coordinator_lbfgs, "largest_noise", lambda widths, columns: 20)
    block, labels = table()
    with pytest.raises(ProtocolError, match="less than products need"):
        train(cut(block, labels, CUTS["vertical"]))


def test_nobody_but_who_gets_the_model_learns_a_weight(run):
    federation, trained, *_ = run
    for party in federation.parties.values():
        with pytest.raises(ProtocolError, match="shares"):
            party._half.weights(0)
        share = party._half.model_share(0).words.view(np.int64) * 2.0**-28
        assert np.abs(share).max() > 1e6 * np.abs(weights(trained.model)).max()
    assert POINT.name == "sealed.point"


def test_the_shares_of_all_parties_but_one_tell_nothing_of_the_matrices(run):
    """Whoever gets the model adds up all of them; nobody else is sent any."""
    federation, *_ = run
    shares = [party._half.moment_shares(0) for party in federation.parties.values()]
    for words in (
        [share.gram.words for share in shares],
        [share.hessians[0].words for share in shares],
    ):
        small = sum(words).view(np.int64)
        assert np.abs(small).max() < 1 << 58
        for lacking in range(len(words)):
            some = sum(part for number, part in enumerate(words) if number != lacking)
            counts = np.bincount((some >> np.uint64(62)).astype(int).ravel(), minlength=4)
            # Of 49 random words, a quarter of all numbers has none once in a million times.
            assert counts.min() > 0
