"""With one block and fixed matching, HyFEM is FedProx, and without its pull FedAvg.

The judges are loops written here from the papers' formulas, with weights of their own: FedAvg of
McMahan et al. (2017) and FedProx of Li et al. (2020). Only the minibatches are the party's.
"""

from __future__ import annotations

import msgspec
import numpy as np
import pytest
import torch
from small_networks import HELD, SEEN, WIDTHS, holdings, tiny, trained
from torch.nn.functional import cross_entropy, linear, relu

from weft_neural.local_sgd_steps import Trainer
from weft_neural.neuron_matching import Matching
from weft_neural.party_neural_network import Labelled, PartyNetwork
from weft_neural.sample_sources import BlockSource
from weft_neural.settings import Block

ONE = dict.fromkeys(HELD, ("ct",))
MU = 0.7


def forward(weights, x):
    """One affine extractor with ReLU, one hidden layer, logits."""
    a, b, c, d, e, f = weights
    return linear(relu(linear(relu(linear(x, a, b)), c, d)), e, f)


def weights_of(model):
    """A model's weights as the formula above takes them, in double precision."""
    (extractor,) = model.extractors.values()
    width, features = WIDTHS["ct"], 4
    parts = [extractor[: width * features].reshape(features, width), extractor[width * features :]]
    for layer in model.classifier:
        parts += [layer[:, :-1], layer[:, -1]]
    return [torch.tensor(np.array(part), dtype=torch.float64) for part in parts]


def textbook(start, data, drawn, shares, rate, mu):
    """Rounds of local steps on f_m + μ/2 ‖w − w⁰‖² from w⁰, then w⁰ = Σ p_m w_m."""
    server = [part.clone() for part in start]
    for batches in drawn:
        sums = [torch.zeros_like(part) for part in server]
        for party, share in shares.items():
            x, y = data[party]
            own = [part.clone().requires_grad_() for part in server]
            for batch in batches[party]:
                loss = cross_entropy(forward(own, x[batch]), y[batch])
                loss = loss + mu / 2 * sum(
                    ((w - c) ** 2).sum() for w, c in zip(own, server, strict=True)
                )
                slopes = torch.autograd.grad(loss, own)
                with torch.no_grad():
                    own = [
                        (w - rate * g).requires_grad_() for w, g in zip(own, slopes, strict=True)
                    ]
            sums = [s + share * w.detach() for s, w in zip(sums, own, strict=True)]
        server = sums
    return server


@pytest.fixture
def overheard(monkeypatch):
    """The minibatches that parties draw, in the order in which they do."""
    drawn = []
    draw = Trainer._drawn

    def listen(self, *args):
        found = draw(self, *args)
        drawn.append(found.clone())
        return found

    monkeypatch.setattr(Trainer, "_drawn", listen)
    return drawn


def distance(method, pull, weigh, overheard):
    """Between the server's model and the textbook's, and how far training went."""
    block = Block(extractor="mlp", options={"hidden": (), "features": 4}, scaling="none")
    how = tiny(
        ("ct",),
        block=block,
        method=method,
        mu1=MU,
        mu2=MU,
        rate=0.2,
        rounds=4,
        weigh=weigh,
        matching=Matching(fixed=True),
    )
    held = holdings(held=ONE, seen=SEEN)
    data = {
        party: (torch.tensor(own.blocks["ct"]), torch.tensor(own.labels))
        for party, own in held.items()
    }
    counts = {p: len(own) if weigh == "samples" else 1 for p, own in held.items()}
    shares = {party: count / sum(counts.values()) for party, count in counts.items()}
    assert weigh == "parties" or len(set(shares.values())) == 3
    own = {party: BlockSource(party, h) for party, h in held.items()}
    run = trained(own, how, record=True)
    begun = next(e.message for e in run.channel.transcript if e.phase == "neural.train")
    shapes = [part.shape for part in weights_of(run.model)]
    flat = torch.tensor(
        np.concatenate([begun["extractors"], begun["classifier"]]), dtype=torch.float64
    )
    start = [
        part.reshape(shape)
        for part, shape in zip(flat.split([s.numel() for s in shapes]), shapes, strict=True)
    ]
    rounds = [
        dict(zip(held, overheard[at : at + len(held)], strict=True))
        for at in range(0, len(overheard), len(held))
    ]
    assert len(rounds) == how.rounds
    wanted = textbook(start, data, rounds, shares, how.rate, pull)
    ours = weights_of(run.model)
    apart = max(float((a - b).abs().max()) for a, b in zip(ours, wanted, strict=True))
    moved = max(float((a - b).abs().max()) for a, b in zip(ours, start, strict=True))
    return apart, moved


@pytest.mark.parametrize("weigh", ["samples", "parties"])
@pytest.mark.parametrize(("method", "pull"), [("prox", MU), ("avg", 0.0)])
def test_one_block_and_fixed_matching_is_fedprox_or_fedavg(method, pull, weigh, overheard):
    apart, moved = distance(method, pull, weigh, overheard)
    assert apart < 2e-6
    assert moved > 0.1


def test_the_textbook_with_another_pull_is_another_method(overheard):
    apart, _ = distance("prox", 0.0, "samples", overheard)
    assert apart > 1e-3


def test_a_step_is_the_gradient_by_differences_with_the_pull():
    """One step of w ← w − η (g + μ (w − c)) with μ1 ≠ μ2, after c and w were set apart."""
    block = Block(extractor="mlp", options={"hidden": (), "features": 4}, scaling="none")
    how = tiny(("ct",), block=block, mu1=0.5, mu2=2.0, rate=0.1, steps=1, rounds=1, batch=4)
    data = holdings(held=ONE)["north"]
    shaped = {"ct": msgspec.structs.replace(block, shape=(WIDTHS["ct"],))}
    labelled = Labelled({"ct": data.blocks["ct"].astype(np.float32)}, data.labels)
    local = PartyNetwork("north", how, shaped, np.arange(3), labelled, None, torch.device("cpu"))
    local._trainer = Trainer(local.net, local._trainer._samples, pulls=how.pulls, batch=None)
    random = np.random.default_rng(0)
    centre = [w.clone() for w in (local.net.extractor_weights, local.net.classifier_weights)]
    local._trainer.pull_here()
    for flat in (local.net.extractor_weights, local.net.classifier_weights):
        flat += torch.from_numpy(random.normal(0, 0.3, len(flat)).astype(np.float32))
    before = [w.clone() for w in (local.net.extractor_weights, local.net.classifier_weights)]
    shapes = [part.shape for part in weights_of(local.model({}))]
    x, y = torch.tensor(data.blocks["ct"]), torch.tensor(data.labels)

    def value(flat):
        parts = flat.split([s.numel() for s in shapes])
        weights = [part.reshape(shape) for part, shape in zip(parts, shapes, strict=True)]
        return float(cross_entropy(forward(weights, x), y))

    at = torch.cat(before).double()
    slope = torch.zeros_like(at)
    for k in range(len(at)):
        unit = torch.zeros_like(at)
        unit[k] = 1e-6
        slope[k] = (value(at + unit) - value(at - unit)) / 2e-6
    pull = torch.cat([0.5 * (before[0] - centre[0]), 2.0 * (before[1] - centre[1])]).double()
    local.train(1)
    after = torch.cat([local.net.extractor_weights, local.net.classifier_weights]).double()
    assert float(pull.abs().max()) > 0.5
    assert torch.allclose(after, at - 0.1 * (slope + pull), atol=3e-7, rtol=0)
