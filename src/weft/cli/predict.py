"""``weft predict``: predictions for new samples, of a whole model or by all parties jointly."""

from __future__ import annotations

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    import pandas as pd

    from weft.data.tile import Tile
    from weft.federation.model import Model
    from weft.federation.prediction_table import Predictions
    from weft.network.submitted_task import PredictTask


def predict(
    model: Annotated[Path, typer.Argument(help="A model.npz that 'weft train' wrote.")],
    files: Annotated[list[Path] | None, typer.Argument(help="Files of new samples.")] = None,
    joint: Annotated[
        Path | None,
        typer.Option(help="A config whose parties each have a file of new samples."),
    ] = None,
    partial: Annotated[
        bool,
        typer.Option("--partial", help="Take the columns there are; others count as their centre."),
    ] = False,
    id: Annotated[str, typer.Option(help="Id column of the files.")] = "id",
    network: Annotated[
        Path | None,
        typer.Option(
            metavar="KIT",
            help="With --joint: ask the sites that joined, with a submitter's kit.",
        ),
    ] = None,
    party: Annotated[
        str | None,
        typer.Option(
            metavar="NAME",
            help="Whose files these are, where parties read columns differently; with --network: "
            "who asks, and alone reads the scores.",
        ),
    ] = None,
    keys: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="With --joint: keys that 'weft keys new' made; by default new ones. With "
            "--network: those of --party, which sign the question and open the scores.",
        ),
    ] = None,
    ledger: Annotated[
        Path | None,
        typer.Option(
            metavar="FOLDER",
            help="With --joint: where parties count sums; by default ledger/ beside the config.",
        ),
    ] = None,
    record: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE", help="With --joint: keep every message here, for 'weft audit'."
        ),
    ] = None,
    resume: Annotated[
        str | None,
        typer.Option(metavar="RUN", help="With --network: go on with a run that was interrupted."),
    ] = None,
    scores: Annotated[bool, typer.Option("--scores", help="Write the scores too.")] = False,
    probabilities: Annotated[
        bool,
        typer.Option("--probabilities", help="Write the probability of every class too."),
    ] = False,
    threshold: Annotated[
        float | None,
        typer.Option(
            metavar="P", help="Predict the second of two classes from this probability on."
        ),
    ] = None,
    out: Annotated[Path | None, typer.Option(help="CSV file to write instead of stdout.")] = None,
) -> None:
    """Predict for new samples: a CSV with id and prediction.

    A file that has all features needs nothing else; columns are found by name and become features
    as they did in training, and a blank cell counts as it did there. With --partial one party
    predicts from its own columns alone. With --joint the parties of a config add up their parts of
    every sample's score without showing them.

    With --network the parties are sites that joined (weft join --new names their tables), and the
    config is one for weft submit. Scores are those of the samples of --party, which signs the
    question with its --keys and alone reads them: they are in a file at its site, and here.
    """
    from weft.config.read_cells_of_new_samples import read_samples
    from weft.errors import ConfigError
    from weft.federation.model import load_model
    from weft.federation.prediction_table import Predictions

    trained = load_model(model)
    wanted = Columns(scores, probabilities, threshold)
    wanted.check(trained)
    if network is not None:
        if joint is None or party is None or keys is None or not (ledger is record is None):
            raise ConfigError(
                "--network needs --joint CONFIG, --party NAME and its --keys, and takes neither "
                "--ledger nor --record, which are at the sites"
            )
        _over_network(trained, joint, network, party, keys, out, resume, wanted)
        return
    if resume is not None or (joint is not None and party is not None):
        raise ConfigError("--resume, and --party with --joint, are for --network; leave them out")
    if (joint is None) == (not files):
        raise ConfigError("name files of new samples, or a config with --joint, but not both")
    if joint is None and not (keys is None and record is None and ledger is None):
        raise ConfigError(
            "--keys, --record and --ledger are for --joint; nothing is sent without it"
        )
    found: list[Predictions] = []
    if joint is not None:
        found.append(_joint_scores(trained, joint, keys, record, ledger))
    for path in files or []:
        samples = read_samples(path, trained, id_column=id, party=party or "")
        _say(samples.remarks, path.name)
        tile = samples.tile
        if partial:
            sums = trained.partial(tile.features, tile.block) + trained.centre_score
        else:
            sums = trained.decision(trained.aligned(tile.features, tile.block, path.name))
        found.append(Predictions(trained, tile.ids, sums))
    _write([wanted.frame(one) for one in found], out)


@dataclass(frozen=True)
class Columns:
    """What is written beside ids and predictions."""

    scores: bool
    probabilities: bool
    threshold: float | None

    def check(self, model: Model) -> None:
        """Refuse what the model does not have, before anybody is asked for anything."""
        import numpy as np

        from weft.federation.prediction_table import Predictions

        nobody = Predictions(model, np.zeros(0, object), np.zeros((0, len(model.coef))))
        self.frame(nobody)

    def frame(self, found: Predictions) -> pd.DataFrame:
        """Predictions as a table."""
        return found.frame(
            with_scores=self.scores,
            with_probabilities=self.probabilities,
            threshold=self.threshold,
        )


def _over_network(
    model: Model,
    config: Path,
    kit: Path,
    asker: str,
    keys: Path,
    out: Path | None,
    resume: str | None,
    wanted: Columns,
) -> None:
    """Ask sites for scores in the name of a party, whose keys are here."""
    from weft.network.nvflare_processes import require_engine

    require_engine()
    from weft.cli.submit_and_follow import followed_run
    from weft.config.read_config import read_config
    from weft.crypto.keys import load_keys
    from weft.errors import ConfigError
    from weft.network.kits.kit_folder import Kit
    from weft.network.prediction_job import make_prediction, read_scores, sign_prediction
    from weft.network.task_from_config import parties_of

    opened = Kit.open(kit, "submitter")
    plan = read_config(config, deployed=True)
    identity = load_keys(keys, asker).identity
    if out is not None and not out.parent.is_dir():
        raise ConfigError(f"there is no folder {out.parent} to write {out.name} in; make it first")

    def make_task(connected: Sequence[str], run: str) -> PredictTask:
        asked = make_prediction(plan, parties_of(plan, connected), model, asker)
        return sign_prediction(asked, run, identity)

    with followed_run(opened, plan, make_task, resume=resume) as back:
        found = read_scores(back.folder, identity, model)
    _write([wanted.frame(found)], out)


def _joint_scores(
    model: Model, config: Path, keys: Path | None, record: Path | None, ledger: Path | None
) -> Predictions:
    """Scores that the parties of a config find together."""
    from weft.config.read_cells_of_new_samples import insist_on_overlap, read_joint_samples
    from weft.config.read_config import read_config
    from weft.federation.local_joint_prediction import predict_scores
    from weft.federation.prediction_table import Predictions
    from weft.protocol.recording_file import Head
    from weft.report.recording_placement import recorded_to

    plan = read_config(config)
    insist_on_overlap(plan, model)
    samples = read_joint_samples(plan, model)
    tiles = {name: tuple(one.tile for one in held) for name, held in samples.items()}
    for name, held in samples.items():
        _say([said for one in held for said in one.remarks], name)
    own = plan.load_keys(tiles, keys)
    cipher = plan.settings.cipher
    with recorded_to(record, Head(plan.name, list(tiles), cipher)) as recorder:
        _remark_on_missing(model, tiles)
        ids, scores = predict_scores(
            model,
            tiles,
            cipher=cipher,
            keys=own,
            record=recorder,
            consents=plan.load_consents(tiles),
            matching=plan.terms.matching,
            ledger=plan.ledger(ledger),
        )
    return Predictions(model, ids, scores)


def _say(remarks: list[str], where: str) -> None:
    for said in remarks:
        print(f"weft: {where}: {said}", file=sys.stderr)


def _remark_on_missing(model: Model, tiles: Mapping[str, Sequence[Tile]]) -> None:
    """Say which features nobody brought: their centre stands in for them."""
    brought = {name for held in tiles.values() for tile in held for name in tile.features.tolist()}
    missing = [name for name in model.features.tolist() if name not in brought]
    if missing:
        named = ", ".join(missing[:5]) + (" …" if len(missing) > 5 else "")
        print(
            f"weft: no party holds {len(missing)} of the model's features ({named}); they count as "
            "their centre",
            file=sys.stderr,
        )


def _write(frames: list[pd.DataFrame], out: Path | None) -> None:
    import pandas as pd

    from weft.storage.atomic_files import replacing

    everything = pd.concat(frames, ignore_index=True)
    if out is None:
        everything.to_csv(sys.stdout, index=False)
        return
    with replacing(out) as draft:
        everything.to_csv(draft, index=False)
