"""What the 2024 text proves, on a network for which its constants are known.

Extractors are affine and their outputs are added up to logits, so that a party's loss is that of
softmax regression: its curvature is at most ½ λ_max(XᵀX/n) (Böhning 1992), and the gradient of a
sample is (p − e_y) ⊗ x. The judge knows weights and samples only, in doubles.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
import pytest
from scipy.optimize import minimize
from scipy.special import logsumexp, softmax
from small_networks import CLASSES, HELD, WIDTHS, tiny, trained

from covering import before_release
from weft_neural import party_neural_network as local
from weft_neural import server_aggregation
from weft_neural.local_sgd_steps import Trainer
from weft_neural.neural_network import Net
from weft_neural.neuron_matching import Matching
from weft_neural.party_samples import Holdings
from weft_neural.sample_sources import BlockSource
from weft_neural.settings import Block

AFFINE = Block(extractor="linear", options={"features": CLASSES}, scaling="none")


class Added(Net):
    """The outputs of all extractors, added up; the classifier stays where it is."""

    def classify(self, features):
        still = 0 * sum(weights.sum() for weights in self.linears.parameters())
        return features.reshape(len(features), -1, CLASSES).sum(dim=1) + still


class Watched(Trainer):
    """Keeps the weights of its extractors before every step, and after the last of a round."""

    whole = True
    paths: list

    def __init__(self, net, samples, *, pulls, batch):
        super().__init__(net, samples, pulls=pulls, batch=None if self.whole else batch)

    def run(self, *args):
        self.paths.append([])
        found = super().run(*args)
        self._keep()
        return found

    def _step(self):
        self._keep()
        super()._step()

    def _keep(self):
        self.paths[-1].append(self._flats[0].double().numpy().copy())


@pytest.fixture
def watched(monkeypatch):
    """Networks that add up, and all weights that they go through."""
    monkeypatch.setattr(local, "Net", Added)
    monkeypatch.setattr(local, "Trainer", Watched)
    monkeypatch.setattr(Watched, "whole", True)
    monkeypatch.setattr(Watched, "paths", [], raising=False)
    return Watched


class Judge:
    """A party's loss as a function of the weights of its extractors."""

    def __init__(self, held):
        ones = np.ones((len(held), 1))
        self.x = [np.hstack([block, ones]) for block in held.blocks.values()]
        self.hot = np.eye(CLASSES)[held.labels]
        self.sizes = [CLASSES * x.shape[1] for x in self.x]
        self.lengths = sum((x**2).sum(axis=1) for x in self.x)
        self.curvature = 0.5 * float(np.linalg.norm(np.hstack(self.x), 2)) ** 2 / len(held)

    def logits(self, weights):
        total = 0
        for x, part in zip(self.x, np.split(weights, np.cumsum(self.sizes)[:-1]), strict=True):
            width = x.shape[1] - 1
            matrix = part[: CLASSES * width].reshape(CLASSES, width)
            total = total + x[:, :-1] @ matrix.T + part[CLASSES * width :]
        return total

    def __call__(self, weights):
        """Value and gradient."""
        logits = self.logits(weights)
        value = (logsumexp(logits, axis=1) - (logits * self.hot).sum(axis=1)).mean()
        slopes = (softmax(logits, axis=1) - self.hot) / len(logits)
        parts = []
        for x in self.x:
            both = slopes.T @ x
            parts += [both[:, :-1].ravel(), both[:, -1]]
        return value, np.concatenate(parts)

    def variance(self, weights):
        """Of the gradient of one sample."""
        slopes = softmax(self.logits(weights), axis=1) - self.hot
        squares = (slopes**2).sum(axis=1) * self.lengths
        return squares.mean() - np.sum(self(weights)[1] ** 2)


def skewed(held, count=40):
    """Samples with few hints at their classes, of which every party has one more than the others:
    well-conditioned losses with minima that differ.
    """
    random = np.random.default_rng(5)
    found = {}
    for number, (party, names) in enumerate(held.items()):
        likely = np.where(np.arange(CLASSES) == number % CLASSES, 0.6, 0.2)
        labels = random.choice(CLASSES, count, p=likely)
        blocks = {}
        for name in names:
            hints = 0.3 * np.eye(CLASSES, WIDTHS[name])[(labels + number) % CLASSES]
            blocks[name] = hints + random.normal(size=(count, WIDTHS[name]))
        found[party] = Holdings(blocks, labels)
    return found


def run_of(held, how):
    return trained(
        {party: BlockSource(party, own) for party, own in held.items()}, how, record=True
    )


def affine(names, **changes):
    fixed = {"matching": Matching(fixed=True), "begin": "own", "weigh": "parties", "hidden": (1,)}
    # Nothing is hidden, nothing measured: that takes most of the time of such small steps.
    fixed |= {"cipher": "plain", "evaluate_every": 1000}
    return tiny(names, block=AFFINE, **{**fixed, **changes})


# ── Remark 3: FedProx's problem, and FedAvg's as μ grows ──────────────────────────────────────

ONE = dict.fromkeys(HELD, ("lab",))


def centred(weights):
    """Weights up to what changes no probability: a constant added to all classes."""
    width = WIDTHS["lab"]
    both = np.hstack([weights[: CLASSES * width].reshape(CLASSES, width), weights[-CLASSES:, None]])
    return both - both.mean(axis=0)


def solve(value, size):
    found = minimize(value, np.zeros(size), jac=True, method="BFGS", options={"gtol": 1e-7})
    return found.x


@pytest.mark.parametrize("pulls", [(2, 4), *before_release((2, 4, 8))], ids=str)
def test_the_server_solves_7_and_tends_to_fedavgs_minimum_like_one_over_mu(watched, pulls):
    held = skewed(ONE, 150)
    judges = [Judge(own) for own in held.values()]
    size = judges[0].sizes[0]
    steep = max(judge.curvature for judge in judges)

    def average(w):
        values, slopes = zip(*(judge(w) for judge in judges), strict=True)
        return np.mean(values), np.mean(slopes, axis=0)

    def pulled(all_weights, mu):
        *own, centre = all_weights.reshape(len(judges) + 1, size)
        value, slopes = 0.0, []
        for judge, w in zip(judges, own, strict=True):
            loss, slope = judge(w)
            value += (loss + mu / 2 * np.sum((w - centre) ** 2)) / len(judges)
            slopes.append((slope + mu * (w - centre)) / len(judges))
        last = mu * (centre - np.mean(own, axis=0))
        return value, np.concatenate([*slopes, last])

    goal = centred(solve(average, size))
    mus, distances = [pull * steep for pull in pulls], []
    for mu in mus:
        how = affine(
            ("lab",), mu1=mu, mu2=mu, rate=1 / (steep + mu), rounds=round(30 * mu / steep), steps=2
        )
        found = centred(run_of(held, how).model.extractors["lab"])
        wanted = solve(lambda w, mu=mu: pulled(w, mu), size * (len(judges) + 1))[-size:]
        distances.append(np.linalg.norm(found - goal))
        assert np.linalg.norm(found - centred(wanted)) < 0.02 * distances[-1]
    # A distance of c/μ + O(1/μ²): twice the pull, nearly half the distance, and ever more nearly.
    falls = [further / nearer for further, nearer in pairwise(distances)]
    assert falls == sorted(falls)
    assert 1.6 < falls[0] <= falls[-1] < 2
    assert distances[-1] < 0.05 * np.linalg.norm(goal)


# ── Theorem 2 ─────────────────────────────────────────────────────────────────────────────────

MU = 0.5


class Account:
    """The constants of Lemma 1, and both sides of (23)."""

    def __init__(self, held, how):
        self.held, self.how = held, how
        self.judges = {party: Judge(own) for party, own in held.items()}
        self.p = p = 1 / len(held)
        # The text's step on x_m is η p_m (∇f_m + μ (x_m − z)); that of Algorithm 2 leaves p_m out.
        self.eta = how.rate / p
        self.steepest = max(p * judge.curvature for judge in self.judges.values()) + MU
        self.strong = p * MU
        self.largest = min(1 / self.steepest, 8 * self.strong / (5 * MU**2))
        lowest = [judge(solve(judge, sum(judge.sizes)))[0] for judge in self.judges.values()]
        self.lowest = p * sum(lowest)

    def cut(self, party, vector):
        names = list(self.held[party].blocks)
        ends = np.cumsum([CLASSES * (WIDTHS[name] + 1) for name in names])[:-1]
        return dict(zip(names, np.split(np.asarray(vector, float), ends), strict=True))

    def gap(self, party, x, z):
        """x_m − P_m z."""
        return x - np.concatenate([z[name] for name in self.held[party].blocks])

    def objective(self, x, z):
        return self.p * sum(
            self.judges[party](w)[0] + MU / 2 * np.sum(self.gap(party, w, z) ** 2)
            for party, w in x.items()
        )

    def slope(self, x, z):
        """‖∇_x L‖²."""
        return self.p**2 * sum(
            np.sum((self.judges[party](w)[1] + MU * self.gap(party, w, z)) ** 2)
            for party, w in x.items()
        )

    def pull(self, x, z):
        """‖∇_z L‖."""
        total = {name: np.zeros(len(part)) for name, part in z.items()}
        for party, w in x.items():
            for name, part in self.cut(party, self.gap(party, w, z)).items():
                total[name] += self.p * MU * part
        return max(np.abs(part).max() for part in total.values())

    def servers(self, run):
        """z^0 to z^T, as they were sent."""
        found = []
        for entry in run.channel.transcript:
            if entry.phase in ("neural.train", "neural.finish"):
                if entry.party == next(iter(self.held)):
                    found.append({})
                found[-1] |= self.cut(entry.party, entry.message["extractors"])
        return found

    def rounds(self, run, paths):
        """Per round: z before, the parties' x before every step and after the last, z after."""
        servers, count = self.servers(run), len(self.held)
        for turn, (before, after) in enumerate(pairwise(servers)):
            own = paths[turn * count : (turn + 1) * count]
            steps = [dict(zip(self.held, x, strict=True)) for x in zip(*own, strict=True)]
            assert len(steps) == self.how.steps + 1
            yield before, steps, after

    def left(self, run, paths):
        total, turns = 0.0, 0
        for before, steps, after in self.rounds(run, paths):
            slopes = [self.slope(x, before) for x in steps]
            moved = sum(np.sum((after[name] - before[name]) ** 2) for name in before)
            # Matching is fixed, so that y^{t+1} = y^t: the last slope stands for two terms.
            total += self.strong / self.eta * moved + slopes[-1] + sum(slopes)
            turns += 1
        return total / (turns * self.how.steps)

    def right(self, run, paths, *, noisy):
        rounds = list(self.rounds(run, paths))
        before, steps, _ = rounds[0]
        first = self.objective(steps[0], before) - self.lowest
        sure = 10 * first / (self.how.rounds * self.how.steps * self.eta)
        ratio = self.steepest * self.eta
        factor = 5 * ratio + 2 * ratio**2 / self.how.steps
        return sure + noisy * factor * max(self.noise(x) for _, all_x, _ in rounds for x in all_x)

    def noise(self, x):
        """σ² where the parties are: minibatches are drawn with replacement."""
        found = sum(self.p**2 * self.judges[party].variance(w) for party, w in x.items())
        return found / self.how.batch


def steps_of(rate, *, rounds, **changes):
    return affine(WIDTHS, mu1=MU, mu2=MU, rate=rate, rounds=rounds, steps=5, **changes)


@pytest.mark.parametrize(
    "noisy",
    [False, pytest.param(True, marks=pytest.mark.release)],
    ids=["all samples", "minibatches"],
)
def test_the_bound_of_theorem_2_holds_at_the_largest_step_that_it_allows(watched, noisy):
    held = skewed(HELD)
    largest = Account(held, steps_of(0.1, rounds=1)).largest
    watched.whole = not noisy
    left, right = [], []
    for seed in range(3 if noisy else 1):
        watched.paths = []
        how = steps_of(largest / len(held), rounds=16, batch=2, seed=seed)
        account, run = Account(held, how), run_of(held, how)
        assert account.eta == pytest.approx(account.largest)
        left.append(account.left(run, watched.paths))
        right.append(account.right(run, watched.paths, noisy=noisy))
    # The left side is an expectation; starts differ with the seed.
    assert np.mean(left) <= np.mean(right)
    assert np.mean(left) > 1e-3 * np.mean(right)


def test_the_bound_of_theorem_2_can_fail(watched):
    """Far beyond the largest step, weights swing about and never settle."""
    held = skewed(HELD)
    how = steps_of(3.0, rounds=16)
    account, run = Account(held, how), run_of(held, how)
    assert account.eta > 5 * account.largest
    assert account.left(run, watched.paths) > account.right(run, watched.paths, noisy=False)


def worst_pull(watched):
    held = skewed(HELD)
    how = steps_of(0.2, rounds=5)
    account, run = Account(held, how), run_of(held, how)
    rounds = list(account.rounds(run, watched.paths))
    return [account.pull(steps[-1], after) for _, steps, after in rounds]


def test_the_server_is_stationary_after_every_round(watched):
    assert max(worst_pull(watched)) < 1e-7


def test_a_server_that_averages_wrongly_is_not_stationary(watched, monkeypatch):
    monkeypatch.setattr(server_aggregation, "mean", lambda vectors, weights: vectors[0])
    assert min(worst_pull(watched)) > 1e-4
