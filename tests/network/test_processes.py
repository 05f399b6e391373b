"""A federation of four processes and one fault of each kind: the right result, or one sentence.

It is one test: processes are slow to start, and all faults happen to the same ones, so that each
step also shows that those before it have left nothing behind. A result is right if it equals, to
the last bit, that of one process in which the same parties were missing; and it is certified. No
step may take longer than its time, so nobody hangs.
"""

from __future__ import annotations

import json
import re
import signal
import socket
import ssl
import time
from contextlib import contextmanager, suppress
from itertools import pairwise

import numpy as np
import pandas as pd
import psutil
import pytest
from deployed import (
    COLUMNS,
    GAP,
    HERE,
    LAM,
    NEURAL,
    ROWS,
    all_bytes,
    borrowed_kit,
    foreign_kit,
    hidden_bytes,
    new_tiles,
    open_scene,
    other_run_secret,
    read_outcomes,
    table,
)
from neural_sites import numbers
from sklearn.linear_model import LogisticRegression
from sklearn.preprocessing import StandardScaler

from weft.cli import main
from weft.federation.local_joint_prediction import predict_scores
from weft.federation.model import load_model
from weft.network.kits.nvflare_settings_of_kit import COORDINATOR
from weft.network.record_and_replay_absences import Presence
from weft.protocol import unpack
from weft_examples.local_federation_processes import SUBMITTER
from weft_examples.open_ports_and_connections import look
from weft_neural.trained_model import NeuralModel

#: In the middle of training: before it come about forty exchanges, after it more than a hundred.
MIDDLE = 60
#: A gap that takes two thirds of the exchanges.
SOON = 10 * GAP
#: Seconds that a party may take where one sleeps.
TIMEOUT = 3.0


def test_faults_end_in_the_right_result_or_in_one_sentence(tmp_path, capsys):
    """A party and the coordinator are killed; with every change, every process more is dear.

    Checks, predictions and sealed runs are below. Without processes, checks are in
    ``test_study_check.py``, predictions in ``test_joint_prediction.py``, sealed runs in which
    anybody is killed in ``test_sealed_recovery.py``.
    """
    with open_scene(tmp_path / "scene") as scene:
        scene.start("west")
        refuses_certificate_of_another(scene, capsys)
        foreign_kit(scene, "west")
        scene.wait_connected()
        speaks_to_nobody_without_its_certificate(scene)
        hidden = goes_on_when_processes_are_killed(scene, job=False, gap=SOON)
        agrees_with_scikit_learn(scene, "killed", gap=SOON)
        keeps_no_ciphertext(scene, "killed", hidden)
        shows_no_traceback(scene)
    assert not list(scene.processes())


@pytest.mark.release
def test_every_fault_leaves_nothing_behind(tmp_path, capsys):
    """All faults, strangers, refusals and a run that trains networks, one after the other.

    Without processes, strangers are in ``test_secure_session.py``, sleep, damage and full disks in
    ``test_network_channel.py``, ``test_site.py`` and ``test_recovery.py``, a job process that dies
    in ``test_submitter_brings_run_to_end.py``, refusals in ``test_site.py``, ``test_malformed.py``
    and ``test_network_commands.py``, networks in ``test_neural_deployed.py``.
    """
    with open_scene(tmp_path / "scene") as scene:
        scene.start("west", "--keys", str(other_run_secret(scene)))
        scene.join("stranger", foreign_kit(scene, "west"), "west")
        refuses_certificate_of_another(scene, capsys)
        scene.wait_connected()
        send_impostor(scene)
        refuses_another_run_secret(scene)
        refuses_strangers(scene)
        scene.kill("west")
        scene.start("west")
        hidden = goes_on_when_processes_are_killed(scene)
        agrees_with_scikit_learn(scene, "killed")
        keeps_no_ciphertext(scene, "killed", hidden)
        goes_on_through_sleep_damage_and_full_disks(scene)
        journal = begins_with_networks(scene)
        refuses_what_policies_forbid(scene)
        trains_networks(scene, journal)
        shows_no_traceback(scene)
    assert not list(scene.processes())


@pytest.mark.release
def test_checks_predictions_and_sealed_runs_end_as_in_one_process(tmp_path):
    """In a scene of their own: west takes part in four runs at most."""
    with open_scene(tmp_path / "scene") as scene:
        scene.start("west")
        scene.wait_connected()
        goes_on_when_processes_are_killed(scene, job=False, gap=SOON)
        counts_before_training(scene, "killed")
        predicts_for_one_party(scene, "killed", "south")
        seals_though_a_party_is_killed(scene)
        shows_no_traceback(scene)
    assert not list(scene.processes())


# ── strangers ─────────────────────────────────────────────────────────────────────────────────


def refuses_certificate_of_another(scene, capsys):
    with pytest.raises(SystemExit) as ended:
        main(["join", str(borrowed_kit(scene, "south", "north"))])
    assert ended.value.code == 2
    told = capsys.readouterr().err
    assert re.fullmatch(
        "weft: .* the kit of 'south', but the certificate in it is that of 'north'; ask .*\n", told
    )


def send_impostor(scene):
    """One who has changed Weft so that it calls itself south, with the certificate of north."""
    with scene.running(str(HERE / "impostor.py"), "south"):
        scene.join("impostor", borrowed_kit(scene, "south", "north"), "south")


def refuses_strangers(scene):
    sentence = r"localhost:\d+ shows a certificate that this kit does not trust .* organiser"
    assert_refused(scene, "stranger", sentence)
    refusal = "authenticated as 'north' but claimed endpoint 'south'"
    scene.wait_for("the impostor", lambda: refusal in scene.engine_log(COORDINATOR))
    # The engine's client may go on trying for ever.
    scene.kill("impostor")
    assert "connected" not in scene.log("impostor")
    speaks_to_nobody_without_its_certificate(scene)


def speaks_to_nobody_without_its_certificate(scene):
    """Nor does the coordinator speak to one who does not ask for its certificate."""
    assert not first_byte(scene.port, scene.folder / "foreign" / "west")
    assert first_byte(scene.port, scene.kit("west"))


def first_byte(port, kit):
    """What whoever listens there says first to somebody with the certificate of a kit."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
    context.load_cert_chain(kit / "startup" / "client.crt", kit / "startup" / "client.key")
    context.set_alpn_protocols(["h2"])
    with (
        suppress(ssl.SSLError, ConnectionResetError),
        socket.create_connection(("localhost", port), timeout=10) as raw,
        context.wrap_socket(raw, server_hostname="localhost") as tls,
    ):
        return tls.recv(1)
    return b""


def refuses_another_run_secret(scene):
    scene.start_run("secrets")
    assert_refused(scene, "secrets", r"parties north and west hold different run secrets; hand out")


def assert_refused(scene, name, pattern, seconds=240):
    """A command that ends with exit code 2, and a sentence as its last line."""
    assert scene.wait(name, seconds) == 2
    last = scene.log(name).strip().splitlines()[-1]
    assert last.startswith("weft: ")
    assert re.search(pattern, last), last


# ── processes that die ────────────────────────────────────────────────────────────────────────


def goes_on_when_processes_are_killed(scene, *, job=True, gap=GAP):
    """A party, then the coordinator's job process if asked for, then all of the coordinator."""
    scene.start_run("killed", gap=gap)
    scene.wait_exchanges("killed", MIDDLE)
    on_loopback_only(scene)
    scene.kill("west")
    before = len(scene.outcomes("killed"))
    journal, outcomes = scene.wait_journal("killed", before + 10)
    hidden = hidden_bytes(outcomes)
    assert all(part in journal for part in hidden)
    if job:
        (process,) = scene.children(COORDINATOR)
        process.kill()
        before = len(scene.outcomes("killed"))
        scene.wait_exchanges("killed", before + 10)
        assert "the coordinator's process died" in scene.log("killed")
    scene.kill(COORDINATOR)
    scene.start(COORDINATOR)
    scene.start("west")
    ends_well(scene, "killed", gap)
    missed = missing(scene, "killed", "west")
    assert len(missed) >= 10 * (1 + job)
    assert scene.log("killed").count("is resumed") >= 1 + job
    return hidden


def seals_though_a_party_is_killed(scene):
    """Nothing of a sealed run goes on without a party: the others wait until it is back."""
    name, gap = "sealed", 0.05
    scene.start_run(name, name="sealed", gap=gap)
    scene.wait_for("gradients on shares", lambda: gradients(scene, name) > 1, needed=[name])
    scene.kill("west")
    scene.start("west")
    assert scene.wait(name, 240) == 0, scene.last_words()
    assert missing(scene, name, "west")
    agrees_with_scikit_learn(scene, name, gap=gap, exact=False)
    assert not scene.journal(name).exists()


def gradients(scene, name):
    """How many were made on shares so far."""
    replies = [outcome.got["north"].replies for outcome in scene.outcomes(name)[20:]]
    return sum("products" in unpack(packed) for each in replies for packed in each)


def on_loopback_only(scene):
    found = look(scene.processes())
    # Coordinator, its job, three parties and the submitter.
    assert found.processes >= 6
    assert found.listening
    assert found.connected
    assert not found.elsewhere


def missing(scene, name, party):
    """How a party was missing, exchange by exchange."""
    moments = Presence.load(scene.out(name) / "presence.json").moments
    return [moment.missing[party].how for moment in moments if party in moment.missing]


def ends_well(scene, name, gap=GAP):
    """It ends in the right result, and nothing else is left of it."""
    assert scene.wait(name, 240) == 0, scene.last_words()
    run, model, certificate = (
        scene.run_name(name),
        scene.model(name),
        scene.summary(name)["certificate"],
    )
    trained = scene.in_one_process(name)
    assert model.coef.tobytes() == trained.model.coef.tobytes()
    for here, there in zip(model.scaling, trained.model.scaling, strict=True):
        assert here.tobytes() == there.tobytes()
    assert certificate["gap"] <= gap
    assert certificate["gap"] == trained.result.certificate.gap
    assert certificate["loss"] == sum(trained.result.certificate.primal)
    for party in scene.parties:
        kept = load_model(scene.kit(party) / "weft" / "models" / run / "model.npz")
        assert kept.coef.tobytes() == model.coef.tobytes()
        assert not (scene.kit(party) / "weft" / "runs" / run).exists()
    assert not scene.journal(name).exists()


def agrees_with_scikit_learn(scene, name, gap=GAP, *, exact=True):
    """On the pooled table that nobody has, without the column that is not offered."""
    model = scene.model(name)
    x, y = table().block[:ROWS, :COLUMNS], table().labels[:ROWS]
    scaled = np.column_stack([StandardScaler().fit_transform(x), np.ones(ROWS)])
    central = LogisticRegression(C=1 / (LAM * ROWS), fit_intercept=False, tol=1e-10).fit(scaled, y)

    def objective(scores):
        weights = np.linalg.lstsq(scaled, scores, rcond=None)[0]
        losses = np.logaddexp(0.0, -np.where(y == central.classes_[1], 1, -1) * scores)
        return LAM / 2 * weights @ weights + losses.mean()

    assert sorted(model.features.tolist()) == sorted(table().features[:COLUMNS].tolist())
    place = [table().features.tolist().index(name) for name in model.features.tolist()]
    loss = objective(np.ravel(model.decision(table().block[:ROWS][:, place])))
    best = objective(central.decision_function(scaled))
    assert best - 1e-9 <= loss <= best * (1 + 2 * gap)
    # On shares a loss is told with noise.
    told = scene.summary(name)["certificate"]["loss"]
    assert loss == pytest.approx(told, rel=1e-9 if exact else 1e-4)


def keeps_no_ciphertext(scene, name, hidden):
    """What parties sent up in training is neither in the results nor left at the coordinator."""
    assert len(hidden) > 50
    places = [scene.out(name), scene.kit(COORDINATOR)]
    for place in places:
        for path, content in all_bytes(place):
            assert not any(part in content for part in hidden), path


# ── checks and predictions ────────────────────────────────────────────────────────────────────


def counts_before_training(scene, name):
    """What the sites tell of a study is what its tables hold; a submitter gets no more."""
    config = scene.folder / f"{name}.toml"
    scene.run("check", "check", str(config), "--network", str(scene.kit(SUBMITTER)), "--json")
    assert scene.wait("check", 120) == 0, scene.log("check")
    found = json.loads(scene.log("check"))
    held = {one["name"]: (one["samples"], one["features"]) for one in found["parties"]}
    assert held == {"north": (120, 6), "south": (120, 6), "west": (80, COLUMNS)}
    groups = {tuple(one["holders"]): one["samples"] for one in found["groups"]}
    assert groups == {("north", "south"): 100, ("north", "south", "west"): 20, ("west",): 60}


def predicts_for_one_party(scene, name, asker):
    """The scores of one process, to the bit, and only for the party that asks."""
    model, out = scene.out(name) / "model.npz", scene.folder / "scores.csv"
    told = ["--joint", str(scene.folder / f"{name}.toml"), "--party", asker, "--scores"]
    told += ["--network", str(scene.kit(SUBMITTER)), "--keys", str(scene.keys), "--out", str(out)]
    scene.run("predict", "predict", str(model), *told)
    assert scene.wait("predict", 120) == 0, scene.log("predict")
    new = {party: (tile,) for party, tile in new_tiles().items()}
    ids, scores = predict_scores(scene.model(name), new)
    found = pd.read_csv(out, dtype={"id": str})
    assert found["id"].tolist() == ids.tolist()
    assert found["score"].to_numpy().tobytes() == scores[:, 0].tobytes()
    kept = [path.parts[-5] for path in (scene.folder / "kits").rglob("predictions.csv")]
    assert kept == [asker]


# ── sleep, damage, full disks ─────────────────────────────────────────────────────────────────


def goes_on_through_sleep_damage_and_full_disks(scene):
    """South's letters are damaged, west sleeps, north's disk is full, then the coordinator's."""
    name = "hurt"
    scene.start_run(name, timeout=TIMEOUT)
    scene.wait_exchanges(name, MIDDLE)
    sleeps(scene, name)
    assert scene.damages.read_text().split() == ["letter", "reply"]
    fills_disk_of_party(scene, name)
    fills_disk_of_coordinator(scene, name)
    scene.start_run(name, "--resume", scene.run_name(name), timeout=TIMEOUT)
    ends_well(scene, name)
    assert not missing(scene, name, "south")
    assert any("north failed (cannot write" in note for note in scene.summary(name)["notes"])


def sleeps(scene, name):
    """Its timeout is paid once; it takes part again when it has woken up."""

    def without():
        return [outcome for outcome in scene.outcomes(name) if "west" in outcome.lacking]

    scene.kill("west", signal.SIGSTOP)
    scene.wait_for("exchanges without west", lambda: len(without()) > 30, needed=[name])
    time.sleep(TIMEOUT / 2)
    scene.kill("west", signal.SIGCONT)
    found = scene.wait_back(name, "west", since=without()[-1].number)
    took = [after.elapsed - before.elapsed for before, after in pairwise(found)]
    slept = [t for t, after in zip(took, found[1:], strict=True) if "west" in after.lacking]
    # Differences of times that have two digits each: to rounding.
    assert sum(t >= TIMEOUT - 1e-6 for t in slept) == 1
    assert np.median(slept) < TIMEOUT / 10


def fills_disk_of_party(scene, name):
    """The others go on; the party says why it does not, and goes on when there is room."""
    journal = scene.kit("north") / "weft" / "runs" / scene.run_name(name) / "journal.weft"
    away = "north is away: it cannot write down"
    with full_disk(scene.working("north"), journal):
        # North may be back at its next ping, and only an iteration's end tells who is away.
        scene.wait_for(
            "north's disk to be full", lambda: away in scene.log(COORDINATOR), needed=[name]
        )
    said = [outcome for outcome in scene.outcomes(name) if "north" in outcome.lacking]
    reasons = [outcome.lacking["north"].reason for outcome in said]
    assert any("cannot write down what it must keep" in reason for reason in reasons)
    sentence = r"journal of the run cannot be written \(.*\); check .* permissions and free space"
    scene.wait_for("north's sentence", lambda: re.search(sentence, scene.log("north")))
    scene.wait_back(name, "north", since=said[-1].number)


def fills_disk_of_coordinator(scene, name):
    (job,) = scene.children(COORDINATOR)
    with full_disk(job, scene.journal(name)):
        assert_refused(scene, name, "coordinator cannot write down what it must keep.*--resume")


@contextmanager
def full_disk(process, path):
    """Let a process write no file any longer than one of its files is now."""
    _, most = process.rlimit(psutil.RLIMIT_FSIZE)
    process.rlimit(psutil.RLIMIT_FSIZE, (path.stat().st_size, most))
    yield
    if process.is_running():
        process.rlimit(psutil.RLIMIT_FSIZE, (most, most))


# ── networks ──────────────────────────────────────────────────────────────────────────────────


def begins_with_networks(scene):
    """A run that may come to its end while something else is looked at; its journal."""
    scene.submit(scene.neural_config("networks"), scene.out("networks"), name="networks")
    journal = scene.keep_journal("networks")
    begun = f"run {scene.run_name('networks')}: all parties are there: {', '.join(NEURAL)}"
    scene.wait_for("networks", lambda: begun in scene.log(COORDINATOR), needed=["networks"])
    return journal


def trains_networks(scene, journal):
    """The networks of one process; and nothing but weights, sums and sizes has crossed."""
    name = "networks"
    assert scene.wait(name, 60) == 0, scene.last_words()
    trained = scene.networks_in_one_process(name)
    assert numbers(NeuralModel.load(scene.out(name) / "model.npz")) == numbers(trained.model)
    for party in NEURAL:
        models = scene.kit(party) / "weft" / "models" / scene.run_name(name)
        kept, received = models / "own.npz", models / "received.npz"
        assert numbers(NeuralModel.load(kept)) == numbers(trained.own[party])
        assert numbers(NeuralModel.load(received)) == numbers(trained.received[party])
    assert not scene.journal(name).exists()
    outcomes = read_outcomes(journal)
    assert len(outcomes) == trained.meter.round_trips
    replies = [part for out in outcomes for got in out.got.values() for part in got.replies]
    shows_no_sample(b"".join(replies))


def shows_no_sample(crossed):
    # Zeros side by side are everywhere.
    cells = table().block[:ROWS, :COLUMNS].reshape(-1, 2)
    cells = cells[cells.all(axis=1)]
    for kind in ("<f8", "<f4"):
        assert not any(two.tobytes() in crossed for two in cells.astype(kind))
    for kind in ("<i8", "<i4", "u1", "<f8", "<f4"):
        labels = table().labels[:ROWS].astype(kind)
        assert not any(labels[at : at + 20].tobytes() in crossed for at in range(0, ROWS, 20))


# ── policies, and what users see ──────────────────────────────────────────────────────────────


def refuses_what_policies_forbid(scene):
    """Each site for a reason of its own, which whoever submits the run is told."""
    scene.start_run("policies", name="lbfgs", cipher="paillier")
    pattern = "north .*solver.*south .*paillier.*west .*4 run"
    assert_refused(scene, "policies", pattern)


def shows_no_traceback(scene):
    for log in (scene.folder / "logs").glob("*.log"):
        assert "Traceback" not in log.read_text(), log
