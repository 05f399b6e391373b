"""Joint prediction as a kind of run: sites score new samples, and one of them reads the scores."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from weft.errors import ConfigError, ProtocolError
from weft.network.job_kind_interface import FinishedRun, OnIteration, RunKind, WrittenBy
from weft.network.record_and_replay_absences import Presence
from weft.network.run_results import PRESENCE, undamaged
from weft.network.submitted_task import PredictTask
from weft.protocol import Channel
from weft.thread_safe_decoding import prepared

if TYPE_CHECKING:
    from weft.config.read_config import Config
    from weft.crypto.party_key_pairs import Identity, PublicIdentity
    from weft.crypto.randomness_kept_for_restart import Memory
    from weft.federation.joint_prediction_party import JointParty
    from weft.federation.model import Model
    from weft.federation.prediction_table import Predictions
    from weft.network.site_data_keys_and_consent import SiteMember
    from weft.privacy.agreement import Consent

_SCORES = "sealed_scores.msgpack"


class SealedScores(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """The scores, sealed by the party that asked to itself, and the run that they are bound to."""

    run: bytes
    letter: bytes


class PredictionJob(RunKind[PredictTask]):
    """Scores samples that lie at several sites; the coordinator carries what it cannot read."""

    task = PredictTask
    about = "joint prediction"
    beginning = "matching samples"
    result_files = (_SCORES, PRESENCE)

    def coordinate(
        self, task: PredictTask, channel: Channel, run: bytes, tell: OnIteration
    ) -> FinishedRun:
        from weft.federation.joint_prediction_coordinator import sum_scores

        letter = sum_scores(
            channel,
            model=bytes.fromhex(task.model),
            width=task.width,
            cipher=task.cipher,
            overlap=task.overlap,
            matching=task.matching,
            asker=task.asker,
            run=run,
        )
        if letter is None:
            raise ProtocolError(f"party {task.asker} did not hand out the scores; update it")
        return WrittenBy(SealedScores(run, letter), [], task, _write)

    def check_consent(self, task: PredictTask, consent: Consent) -> None:
        if task.asker not in task.parties:
            raise ConfigError(
                f"'{task.asker}' asks for scores, but is not among the parties of this run; name "
                "one of them with --party"
            )
        consent.check_asker(task.asker)
        consent.check_cipher(task.cipher)
        consent.check_matching(task.matching)

    def check_author(
        self, task: PredictTask, run: str, identities: Mapping[str, PublicIdentity]
    ) -> None:
        asker = identities.get(task.asker)
        if asker is None:
            raise ConfigError(
                f"this party does not know the keys of '{task.asker}', which asks for scores; hand "
                "them out with 'weft keys'"
            )
        try:
            asker.verify(_signed_content(task, run), bytes.fromhex(task.signature))
        except (ProtocolError, ValueError):
            raise ProtocolError(
                f"the question for scores is not signed with the keys of '{task.asker}'; let that "
                "party ask, with 'weft predict --keys'"
            ) from None

    def open_party(
        self, task: PredictTask, member: SiteMember, consent: Consent, memory: Memory
    ) -> JointParty:
        from weft.federation.joint_prediction_party import Asker, JointParty

        model = member.model_with(task.model)
        if task.overlap != model.overlap:
            raise ConfigError(
                f"party {member.name} refuses overlap = '{task.overlap}', since the model was "
                f"trained with overlap = '{model.overlap}'; ask with the model's"
            )
        samples = member.new_samples(model)
        identity = member.identities[task.asker]
        asker = Asker(task.asker, task.parties.index(task.asker), identity, task.parties)
        return JointParty(
            member.name,
            [one.tile for one in samples],
            model,
            member.keys,
            task.cipher,
            member.ledger,
            consent,
            asker=asker,
            memory=memory,
            remarks=[said for one in samples for said in one.remarks],
        )


def make_prediction(
    config: Config, parties: tuple[str, ...], model: Model, asker: str
) -> PredictTask:
    """The task of a party that asks for the scores of its samples, which it has still to sign."""
    from weft.config.read_cells_of_new_samples import insist_on_overlap

    insist_on_overlap(config, model)
    if asker not in parties:
        raise ConfigError(
            f"--party {asker} is none of {', '.join(parties)}; name the one whose samples are to "
            "be scored"
        )
    return PredictTask(
        name=config.name,
        parties=parties,
        terms=config.terms,
        setup=config.network.setup,
        timeout=config.network.timeout,
        asker=asker,
        model=model.fingerprint.hex(),
        width=len(model.coef),
        cipher=config.settings.cipher,
        overlap=model.overlap,
        matching=config.terms.matching,
        signature="",
    )


def sign_prediction(task: PredictTask, run: str, asker: Identity) -> PredictTask:
    """The task as the party that asks hands it in, for the run of that name and no other."""
    signature = asker.sign(_signed_content(task, run))
    return msgspec.structs.replace(task, signature=signature.hex())


def _signed_content(task: PredictTask, run: str) -> bytes:
    # A run's name has no such byte. Sites begin no run under a name twice, so that nobody can hand
    # in the same question again.
    unsigned = msgspec.structs.replace(task, signature="").to_json()
    return b"weft joint prediction\0" + run.encode() + b"\0" + unsigned.encode()


def read_scores(returned: Path, asker: Identity, model: Model) -> Predictions:
    """What came back, for whoever has the keys of the party that asked."""
    from weft.federation.sealed_score_letter import open_scores

    with undamaged():
        sealed = msgspec.msgpack.decode(
            (returned / _SCORES).read_bytes(), type=prepared(SealedScores)
        )
    return open_scores(sealed.letter, asker, model, sealed.run)


def _write(folder: Path, sealed: SealedScores, task: PredictTask, presence: Presence) -> None:
    (folder / _SCORES).write_bytes(msgspec.msgpack.encode(sealed))
    presence.save(folder / PRESENCE)
