"""The pages on extending Weft work as they stand; outside judges check what they build."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
from dataclasses import replace
from itertools import count
from threading import Event
from unittest.mock import patch

import msgspec
import numpy as np
import pandas as pd
import pytest
from pages import blocks, executed, run
from scipy.optimize import minimize
from sklearn.datasets import load_breast_cancer, load_diabetes
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.preprocessing import StandardScaler

from weft import Federation, Settings
from weft.crypto.ciphers import block_format as payload
from weft.crypto.ciphers import known_ciphers
from weft.crypto.ciphers.authenticated_pad_cipher import Pad
from weft.crypto.ciphers.known_ciphers import register_cipher
from weft.crypto.secret_bytes import Secret
from weft.errors import ConfigError, ProtocolError, WeftError
from weft.guards import Terms, privacy_terms
from weft.losses import LOSSES, get_loss, register_loss
from weft.privacy.audit.audit_of_a_recording import audit
from weft.protocol import Nothing, Request
from weft.protocol.recording_file import Head, entries_of
from weft.solvers.algorithm_choice import ALGORITHMS
from weft.solvers.register_algorithm import register_algorithm
from weft.solvers.rounds.coordinator_totals_and_bound import Step
from weft.solvers.rounds.messages import LOCAL
from weft.solvers.setup_result_and_checkpoint_messages import (
    FORGET,
    SAVE,
    ForgetRequest,
    SaveRequest,
)
from weft.solvers.solver_interfaces_and_results import Coordinator
from weft.solvers.subspace.messages import SEARCH


@pytest.fixture(autouse=True)
def restored():
    """What a page registers is gone afterwards: other tests go over all that is listed."""
    with (
        patch.dict("weft.losses._LOSSES"),
        patch.dict(ALGORITHMS),
        patch.dict(payload.CIPHER_CODES),
        patch.dict(payload._CIPHERS),
        patch.dict(known_ciphers._KINDS),
        patch.object(privacy_terms, "_CIPHERS", [*privacy_terms._CIPHERS]),
    ):
        yield


def standardised(data):
    """The pooled table, by scikit-learn alone."""
    return StandardScaler().fit_transform(data.data), np.asarray(data.target, float)


def weights(model, data):
    """Weights in standardised units in the order of scikit-learn's columns, then the constant's."""
    place = {name: at for at, name in enumerate(model.features.tolist())}
    order = [place[str(name)] for name in data.feature_names]
    shift, factor = (part[order] for part in model.scaling)
    coef = model.coef[0][order]
    return coef / factor, model.intercept[0] + coef @ shift


def logistic_optimum(x, y, lam):
    """The minimiser without a constant, by scikit-learn."""
    judge = LogisticRegression(C=1 / (lam * len(y)), fit_intercept=False, tol=1e-10, max_iter=5000)
    return judge.fit(x, y).coef_[0]


# ── a loss ────────────────────────────────────────────────────────────────────────────────


def test_the_loss_of_the_page_trains_to_the_optimum():
    page = executed("extending/loss.md")
    model, data = page["model"], load_diabetes()
    x, y = standardised(data)
    x = np.hstack([x, np.ones((len(x), 1))])
    lam, epsilon, g = 1e-3, 20.0, 10.0

    def objective(w):
        """The formula of the docstring, written anew."""
        r = x @ w - y
        d = np.maximum(np.abs(r) - epsilon, 0.0)
        losses = np.where(d <= g, d**2 / (2 * g), d - g / 2)
        slope = np.sign(r) * np.minimum(d / g, 1.0)
        return lam / 2 * w @ w + losses.mean(), lam * w + x.T @ slope / len(y)

    best = minimize(objective, np.zeros(x.shape[1]), jac=True, method="L-BFGS-B", tol=1e-12).fun
    found = objective(np.append(*weights(model.model_, data)))[0]
    assert model.solver_ == "lbfgs"
    assert best * (1 - 1e-9) <= found <= best / (1 - model.gap_)
    assert model.gap_ <= 1e-3


@pytest.mark.parametrize(
    ("right", "wrong", "named"),
    [
        ("self.g / 2 * a", "self.g / 4 * a", "conjugate_inside"),
        ("self.epsilon * np.abs(a) +", "", "conjugate_inside"),
        ("np.clip(alpha, -1.0, 1.0)", "np.clip(alpha, -0.5, 0.5)", "project"),
        ("lipschitz: ClassVar[float] = 1.0", "lipschitz: ClassVar[float] = 0.7", "lipschitz"),
        ("return 1 / self.g\n", "return 0.5 / self.g\n", "smoothness"),
        ("lipschitz: ClassVar[float] = 1.0", "lipschitz: ClassVar[float] = 0.0", "above zero"),
        ("return 1 / self.g\n", "return -1 / self.g\n", "above zero"),
        ("(d - curved / 2)", "(d - curved)", "value"),
        ("np.where((d > 0) & (d < self.g), 1 / self.g, 0.0)", "0.0 * d", "curvature"),
        ("/ (q + self.g)", "/ (q + 1.2 * self.g)", "dual_step"),
        ('"regression"', '"ranking"', "task"),
        ("epsilon: float = 0.1", "epsilon: float", "defaults"),
        ('name: ClassVar[str] = "smooth_tube"', 'name: ClassVar[str] = "huber"', "already"),
    ],
)
def test_a_loss_with_a_slip_is_refused_with_the_place(right, wrong, named):
    code = blocks("extending/loss.md", "python")[0]
    assert right in code
    with pytest.raises(ConfigError, match=named) as refused:
        run(code.replace(right, wrong), "a slip", {})
    assert str(refused.value).count(". ") == 0
    assert "smooth_tube" not in LOSSES


def test_what_is_no_loss_is_refused():
    for kind in (int, "hinge", type("Bare", (type(get_loss("hinge")).__mro__[2],), {})):
        with pytest.raises(ConfigError, match=r"is no loss|lacks"):
            register_loss(kind)


def test_compiled_methods_refuse_a_loss_that_they_have_no_formula_for():
    page = executed("extending/loss.md")
    settings = Settings(loss="smooth_tube", lam=1e-2, solver="fedavg", iterations=2)
    with pytest.raises(WeftError, match='loss "smooth_tube" has no compiled formula'):
        Federation(page["split"].parties).train(settings)


# ── an algorithm ──────────────────────────────────────────────────────────────────────────


@pytest.fixture(scope="module")
def nesterov():
    """The page once for all tests of it; its entry is registered anew where it is needed."""
    with patch.dict(ALGORITHMS):
        return {**executed("extending/algorithm.md"), "entry": ALGORITHMS["nesterov"]}


def test_the_algorithm_of_the_page_trains_to_the_optimum(nesterov):
    trained, data = nesterov["trained"], load_breast_cancer()
    x, y = standardised(data)
    y = 2 * y - 1

    def objective(w):
        return 5e-3 * w @ w + np.logaddexp(0, -y * (x @ w)).mean()

    best = objective(logistic_optimum(x, y, 1e-2))
    found = objective(weights(trained.model, data)[0])
    certificate = trained.result.certificate
    assert best * (1 - 1e-9) <= found <= best * (1 + 1.1e-4)
    assert certificate.gap <= 1e-4
    assert certificate.dual[0] <= best * (1 + 1e-9)
    assert certificate.primal[0] == pytest.approx(found, rel=1e-6)


def test_an_audit_of_the_algorithm_knows_all_and_finds_nothing_readable(nesterov):
    trained = nesterov["trained"]
    head = Head("page", list(trained.holdings.parties), "pad")
    found = audit(head, entries_of(trained.channel.transcript))
    assert not found.findings


@pytest.mark.parametrize(
    ("change", "named"),
    [
        ({"name": "auto"}, "already"),
        ({"name": "lbfgs"}, "already"),
        ({"name": "Big Steps"}, "no name"),
        ({"guarantee": " "}, "guarantee"),
        ({"parties_see": ""}, "parties_see"),
        ({"ours": True}, "recommends"),
        ({"reads": ("speed",)}, "no setting"),
        ({"coordinator": dict}, "no Coordinator"),
        ({"options": msgspec.defstruct("Loose", [("rate", float, 1.0)])}, "misspelt"),
        ({"options": msgspec.defstruct("Bare", [("rate", float)])}, "no default"),
        ({"steps": (Step(SAVE, gets=("v",)),)}, "phase 'checkpoint' that no audit knows"),
        ({"steps": (Step(LOCAL, gives=("w",)),)}, "sum 'w' that no audit knows"),
        ({"steps": (Step(LOCAL, scalars=(("norm", 1),)),)}, "scalar 'norm'"),
        ({"steps": (Step(LOCAL, gets=("v", "z")),)}, "get sums over samples .* say 1"),
        ({"sample_sums": None}, "does not say 'sample_sums'"),
        ({"sample_sums": None, "coordinator": Coordinator}, "does not say 'sample_sums'"),
        ({"sample_sums": -1}, "sample_sums = -1"),
        ({"shown_alone": ALGORITHMS["lbfgs"].shown_alone}, "does not say 'shown_alone'"),
    ],
)
def test_an_algorithm_that_says_too_little_is_refused(nesterov, change, named):
    entry = replace(nesterov["entry"], name="other")
    if "steps" in change:
        change = {"coordinator": type("Odd", (entry.coordinator,), change)}
    with pytest.raises(ConfigError, match=named) as refused:
        register_algorithm(replace(entry, **change))
    assert str(refused.value).count(". ") == 0


# ── a cipher ──────────────────────────────────────────────────────────────────────────────


def test_the_cipher_of_the_page_hides_and_trains_to_the_optimum():
    page = executed("extending/cipher.md")
    trained, data = page["hashed"], load_diabetes()
    x, y = standardised(data)
    judge = Ridge(alpha=1e-2 * len(y), fit_intercept=False).fit(x, y)
    found = weights(trained.model, data)[0]
    assert np.linalg.norm(found - judge.coef_) < 0.02 * np.linalg.norm(judge.coef_)
    head = Head("page", list(trained.holdings.parties), "hashed")
    seen = audit(head, entries_of(trained.channel.transcript))
    assert not seen.findings
    # Whoever has not agreed to it refuses, under careful terms and under none.
    for how in (Terms(allow_pairs=True), privacy_terms.OPEN):
        settings = Settings(loss="squared", lam=1e-2, cipher="hashed", iterations=2)
        with pytest.raises(ProtocolError, match="refuses cipher = 'hashed'"):
            Federation(page["split"].parties, terms=how).train(settings)

    def changed(channel):
        """One word of one block is off by one on its way down."""
        exchange, done = channel.exchange, []

        def between(requests):
            for request in requests:
                for message in request.messages.values():
                    if not done and request.phase is SEARCH and message.z is not None:
                        block = bytearray(message.z)
                        block[-8] ^= 1
                        message.z = bytes(block)
                        done.append(request)
            return exchange(requests)

        channel.exchange = between
        return channel

    with pytest.raises(ProtocolError, match="fails its check"):
        page["train"]("hashed", through=changed)


@pytest.mark.parametrize(
    ("name", "code", "named"),
    [("pad", 200, "already"), ("odd", 2, "128 to 255"), ("Odd!", 200, "no name")],
)
def test_a_cipher_needs_a_name_and_code_of_its_own(name, code, named):
    class Other(Pad.streams):
        pass

    kind = type("Odd", (Pad,), {"name": name, "streams": Other})
    with pytest.raises(ConfigError, match=named):
        register_cipher(kind, code)


def test_a_cipher_must_make_pads_of_its_own():
    with pytest.raises(ConfigError, match="the same pads"):
        register_cipher(type("Copy", (Pad,), {"name": "copy"}), 200)
    with pytest.raises(ConfigError, match="no cipher of padded words"):
        register_cipher(known_ciphers.Plain, 200)


def streams_with(**methods):
    """Those of ``pad``, with a slip: methods get the right one first."""
    base = Pad.streams

    def slipping(name, slip):
        return lambda self, *given, **how: slip(getattr(base, name).__get__(self), *given, **how)

    return type("Slip", (base,), {name: slipping(name, slip) for name, slip in methods.items()})


def made_of(change):
    """Pads that come of something else than run, cohorts and slots."""
    return streams_with(__init__=lambda right, key, seeds, start: right(*change(key, seeds), start))


def blocks_like(change):
    """Blocks that are changed, with what they were made of."""
    return streams_with(encrypt=lambda right, blocks, room=None: change(right(blocks), blocks))


#: Something that changes.
COUNTER = count()


def fail(hidden):
    raise ProtocolError("the block fails its check")


@pytest.mark.parametrize(
    ("streams", "named"),
    [
        (
            streams_with(hide=lambda right, kind, slots, values, *rest: right(
                kind, slots, values, *rest
            )._replace(words=values.view(np.uint64))),
            "zeros travel as zeros",
        ),
        (blocks_like(lambda blocks, names: blocks * 0 + np.uint64(7)), "twice in one block"),
        (
            streams_with(hide=lambda right, kind, slots, values, label, *rest: right(
                kind, slots, values, 1, *rest[1:]
            )),
            "same pads in another request",
        ),
        (
            streams_with(hide=lambda right, kind, slots, values, label, *rest: right(
                kind, slots, values, label & ~1, *rest
            )),
            "same pads for another party",
        ),
        (
            streams_with(hide=lambda right, kind, slots, values, label, *rest: right(
                kind, slots, values, label % (1 << 52), *rest
            )),
            "same pads when a run is resumed",
        ),
        (
            streams_with(hide=lambda right, kind, *rest: right(1, *rest)),
            "same pads for another sum over samples",
        ),
        (made_of(lambda key, seeds: (Secret(bytes(32)), seeds)), "same pads in a run with another"),
        (
            made_of(lambda key, seeds: (key, np.arange(seeds.size, dtype=np.uint8))),
            "same pads for cohorts with other seeds",
        ),
        (
            streams_with(hide=lambda right, *given: (
                hidden := right(*given)
            )._replace(words=hidden.words | np.uint64(1 << 40))),
            "does not hide bit 40",
        ),
        (
            blocks_like(lambda blocks, names: blocks + np.uint64(next(COUNTER))),
            "does not work: .* fails its check",
        ),
        (streams_with(show=lambda right, *given, **how: fail(given)), "does not work: the block"),
    ],
)  # fmt: skip
def test_a_cipher_that_hides_nothing_or_opens_wrongly_is_refused(streams, named):
    with pytest.raises(ConfigError, match=named) as refused:
        register_cipher(type("Slip", (Pad,), {"name": "slip", "streams": streams}), 200)
    assert str(refused.value).count(". ") == 0
    assert "slip" not in {*payload.CIPHER_CODES, *known_ciphers._KINDS, *privacy_terms._CIPHERS}


# ── a channel ─────────────────────────────────────────────────────────────────────────────


def test_the_channel_of_the_page_carries_a_run_and_reports_failures():
    page = executed("extending/channel.md")  # which asserts the same bits itself
    trained, data = page["threaded"], load_breast_cancer()
    x, y = standardised(data)
    found, expected = x @ weights(trained.model, data)[0], x @ logistic_optimum(x, y, 1e-2)
    assert np.abs(found - expected).max() < 0.05 * np.abs(expected).max()

    def refuse(phase, message):
        raise ConfigError("no")

    done = Event()

    def slow(phase, message):
        if phase is SAVE:
            done.wait()
        return Nothing()

    def agree(phase, message):
        return Nothing()

    handlers = {"a": agree, "b": refuse, "c": lambda p, m: 1 / 0, "d": slow}
    channel = page["Threads"](handlers, timeout=1.0)
    save, forget = SaveRequest(iteration=1, ack=0), ForgetRequest(iteration=1)
    asked = [Request(SAVE, dict.fromkeys("abcdx", save))]
    asked.append(Request(FORGET, dict.fromkeys("abcdx", forget)))
    first, second = channel.exchange(asked)
    assert {n: f.kind for n, f in first.missing.items()} == {
        "b": "refused", "c": "failed", "d": "late", "x": "unknown",
    }  # fmt: skip
    assert first.missing == second.missing
    assert second.phase == FORGET.name
    assert second.answered == {"a": Nothing()}
    # What was late is thrown away, and not taken for the answer to what comes next.
    done.set()
    channel._timeout = 60.0
    assert channel.ask(FORGET, {"d": forget}).answered == {"d": Nothing()}
    assert channel.meter.round_trips == 2


# ── a plug-in ─────────────────────────────────────────────────────────────────────────────

#: What a user does with the page's plug-in, in a process of its own, which finds it installed.
USED = """
import sys
from contextlib import suppress
from weft.cli import main
for words in ("count-trees", "data list", "split trees --split in_turn --parties 3 --out parties",
              "neural scenes", "neural run scene.toml --out run --baselines --json"):
    print(">", words, flush=True)
    with suppress(SystemExit):
        main(words.split())
"""
SCENE = """
[data]
scene = "trees"
[neural]
coordinator_sees = "weights"
rounds = 6
steps = 8
rate = 0.3
[privacy]
allow_networks = true
coordinator_sees = "weights"
"""


@pytest.mark.release
def test_the_plug_in_of_the_page_adds_all_that_it_says(tmp_path):
    pytest.importorskip("torch")
    (code,), (declared,) = (blocks("extending/plugin.md", kind) for kind in ("python", "toml"))
    package = tmp_path / "installed"
    metadata = package / "orchard-1.0.dist-info"
    metadata.mkdir(parents=True)
    (package / "orchard.py").write_text(code)
    told = tomllib.loads(declared)["project"]["entry-points"]["weft.plugins"]
    lines = "".join(f"{name} = {target}\n" for name, target in told.items())
    (metadata / "entry_points.txt").write_text(f"[weft.plugins]\n{lines}")
    rng = np.random.default_rng(0)
    cells, healthy = rng.normal(size=(80, 5)), np.arange(80) // 4 % 2
    cells += 4 * healthy[:, None]
    frame = pd.DataFrame(cells, columns=["leaf_1", "leaf_2", "leaf_3", "bark_1", "bark_2"])
    (tmp_path / "orchard").mkdir()
    table = frame.assign(tree=[f"t{row}" for row in range(80)], healthy=healthy)
    table.to_csv(tmp_path / "orchard" / "trees.csv", index=False)
    (tmp_path / "scene.toml").write_text(SCENE)
    path = os.pathsep.join([str(package), *filter(None, [os.environ.get("PYTHONPATH")])])
    done = subprocess.run(
        [sys.executable, "-c", USED],
        cwd=tmp_path,
        env={**os.environ, "WEFT_DATA": str(tmp_path), "PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=True,
    )
    counted, listed, _, scenes, run = done.stdout.split("> ")[1:]
    assert counted.split()[-1] == "80"
    assert "leaves and bark" in listed
    assert "in_turn" in listed
    assert "2 parties with leaves" in scenes
    for number in range(3):
        held = pd.read_csv(tmp_path / "parties" / f"p{number + 1}.csv")
        assert held["id"].tolist() == table["tree"][number::3].tolist()
        np.testing.assert_allclose(held[frame.columns], frame[number::3])
        assert held["label"].tolist() == healthy[number::3].tolist()
    summary = msgspec.json.decode(run.partition("\n")[2])
    # The two classes lie nine deviations apart: a network that learns anything separates them.
    assert summary["accuracy"]["server"] >= 0.95
    assert summary["compared"]["central"] >= 0.95
