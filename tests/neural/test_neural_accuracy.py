"""What HyFEM is for: a server's model nearly as good as one trained on all data in one hand.

Six parties have half of the classes each, and some of the blocks. All runs take the same number of
steps, central training too. The settings are the cheapest of several that were tried; margins with
them over seeds 0 to 4 of the networks: Multiple Features at least 98.7 % of central's accuracy and
17 points above FedProx; MNIST at least 97.0 % and 5.3 points.
"""

from __future__ import annotations

from itertools import combinations

import numpy as np
import pytest
from sklearn.datasets import load_digits
from small_networks import HELD, SEEN, WIDTHS, samples, tiny, trained

from covering import before_release
from weft_neural.baselines import train_central, train_fedprox
from weft_neural.local_federation import NeuralFederation
from weft_neural.neuron_matching import Matching
from weft_neural.party_samples import Holdings
from weft_neural.sample_sources import BlockSource
from weft_neural.server_model_accuracy import ServerJudge
from weft_neural.settings import Block, NeuralSettings
from weft_papers.hyfem.scenes import load_scene

#: Features of a block, rate, rounds; and samples to train and to test with.
SCENES = {
    "mfeat": (32, 0.1, 16, {}),
    "mnist": (48, 0.2, 24, {"samples": 4000, "test_samples": 4000}),
}


def settings_of(scene, features, rate, rounds):
    block = Block(extractor="mlp", options={"hidden": (), "features": features})
    return NeuralSettings(
        blocks=dict.fromkeys(scene.blocks, block),
        coordinator_sees="weights",
        rate=rate,
        rounds=rounds,
        steps=16,
        evaluate_every=rounds,
    )


def right(model, blocks, labels):
    return float(np.mean(model.predict({n: blocks[n] for n in model.blocks}) == labels))


@pytest.fixture(scope="module", params=["mfeat", *before_release("mnist")])
def scene_run(request, data_dir):
    """A scene, its run, and its test samples."""
    features, rate, rounds, options = SCENES[request.param]
    scene = load_scene(request.param, data_dir, **options)
    own = {party: BlockSource(party, Holdings(*scene.held(party))) for party in scene.parties}
    how = settings_of(scene, features, rate, rounds)
    judge = ServerJudge(*scene.tested(), device="cpu")
    return scene, how, own, NeuralFederation(own, device="cpu").train(how, judge=judge)


def test_parties_have_parts_only(scene_run):
    scene, *_ = scene_run
    assert {len(share.classes) for share in scene.shares} == {5}
    assert {len(share.blocks) for share in scene.shares} == {3}
    assert len(scene.parties) == 6
    usage = scene.usage()
    assert 1 <= usage.min() <= usage.max() < 6


def test_the_server_is_as_good_as_central_training_and_better_than_fedprox(scene_run):
    scene, how, own, run = scene_run
    test, labels = scene.tested()
    ours = right(run.model, test, labels)
    assert run.last.server_accuracy == pytest.approx(ours, abs=1e-3)
    central = train_central(Holdings(scene.blocks, scene.labels), how, device="cpu").model
    prox = train_fedprox(own, scene.common_blocks(), how, device="cpu").model
    assert ours >= 0.95 * right(central, test, labels)
    assert ours >= right(prox, test, labels) + 0.03
    # Judges that are easy to beat prove nothing.
    assert right(central, test, labels) > 0.85
    assert right(prox, test, labels) > 0.6


def test_a_model_for_blocks_that_no_party_had_together(scene_run):
    scene, _, _, run = scene_run
    held = {frozenset(share.blocks) for share in scene.shares}
    test, labels = scene.tested()
    new = [
        pair
        for count in (2, 3)
        for pair in combinations(scene.blocks, count)
        if not any(set(pair) <= own for own in held)
    ]
    assert new
    found = [right(run.model.restricted(names), test, labels) for names in new]
    # Ten classes: chance is a tenth. The weakest views of Multiple Features alone come to 0.27.
    assert min(found) > 0.2
    assert np.median(found) > 0.7


# ── on samples made here ──────────────────────────────────────────────────────────────────────


def test_a_partys_models_read_its_own_blocks():
    run = trained(how=tiny(rounds=20, rate=0.2, mu1=0.5, mu2=0.5))
    test, labels = samples(90, seed=99)
    assert right(run.model, test, labels) > 0.85
    for party, names in HELD.items():
        assert tuple(run.own[party].blocks) == tuple(n for n in WIDTHS if n in names)
        assert right(run.received[party], test, labels) > 0.6
        # Its own network knows the two classes that it saw.
        known = np.isin(labels, SEEN[party])
        mine = {name: block[known] for name, block in test.items()}
        assert right(run.own[party], mine, labels[known]) > 0.8
    # What a party got is the server's model cut to its blocks, where no rows were left out.
    assert run.model.hidden == (6,)
    for party, names in HELD.items():
        cut = run.model.restricted(names).probabilities(test)
        assert np.allclose(cut, run.received[party].probabilities(test), atol=1e-6)


def test_classifiers_with_starts_of_their_own_are_brought_together_by_matching():
    """Each party numbers its neurons in its own way; one round, no pull to bring them together."""
    images, labels = load_digits(return_X_y=True)
    own = {
        party: BlockSource(party, Holdings({"image": images[at:1500:3]}, labels[at:1500:3]))
        for at, party in enumerate(HELD)
    }
    found = {}
    for fixed in (False, True):
        how = tiny(
            ("image",),
            block=Block(extractor="identity"),
            hidden=(32, 32),
            start="own",
            method="avg",
            rounds=1,
            steps=200,
            batch=32,
            rate=0.2,
            matching=Matching(fixed=fixed),
        )
        run = trained(own, how)
        found[fixed] = right(run.model, {"image": images[1500:]}, labels[1500:])
    # Over seeds 0 to 2: 0.87 to 0.88 matched, 0.33 to 0.63 not.
    assert found[False] > 0.84
    assert found[False] > found[True] + 0.15
