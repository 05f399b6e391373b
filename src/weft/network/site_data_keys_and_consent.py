"""A member of a federation on its own site: the data that it offers, keys, and its consent."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from weft.config.examine_party_data import absent_columns, with_findings
from weft.config.read_cells_of_new_samples import Samples, read_samples
from weft.config.site_policy_file import read_policy
from weft.config.strict_reading import closest
from weft.crypto.keys import PartyKeys, load_keys, read_public
from weft.crypto.party_key_pairs import PublicIdentity
from weft.crypto.randomness_kept_for_restart import Memory
from weft.data.blank_cells import find_blanks, settle_missing
from weft.data.columns.column_rules import decode_rules
from weft.data.file_or_database_address import Source
from weft.data.findings_with_config_fixes import insist
from weft.data.read_tables import table_columns
from weft.data.read_tiles import Examined, examine, read_tile
from weft.data.reading_options import AS_FOUND, ReadingOptions
from weft.data.tile import MissingPolicy, Tile, two_classes
from weft.errors import ConfigError, DataError
from weft.federation.model import Model, load_model
from weft.guards.privacy_terms import OPEN, Terms
from weft.network.installed_job_kinds import job_kind_of, told_task
from weft.network.submitted_task import TrainingTask
from weft.privacy.agreement import Consent, SignedRoster, SitePolicy, read_roster
from weft.privacy.agreement.newest_seen_rosters import RosterPins
from weft.privacy.ledger.run_booking import Ledger
from weft.protocol import Fields

if TYPE_CHECKING:
    from weft.network.model_saving_party import SavingParty


@dataclass(frozen=True)
class SiteMember:
    """Everything that a site brings to every run.

    Attributes
    ----------
    members
        Public keys of all members, from its own folder of keys.
    roster, policy
        The terms all signed, and those of its owner.
    notes
        How its tables were read, a sentence each, for its owner.
    examined
        Its tables with all that was found in them; those in which columns are no numbers need a
        study that declares these.
    pins
        What it remembers of rosters; a revocation counts for the next run that is asked for.
    files, id_column, label, options
        Its tables, and how they are read.
    new
        Its tables of new samples, which are read anew for every joint prediction.
    models
        Folder of the models that it got, one folder for every run.
    """

    name: str
    tiles: tuple[Tile, ...]
    keys: PartyKeys
    members: Mapping[str, PublicIdentity]
    ledger: Ledger
    roster: SignedRoster | None = None
    policy: SitePolicy | None = None
    pins: RosterPins | None = None
    notes: tuple[str, ...] = ()
    examined: tuple[Examined, ...] = ()
    files: tuple[Source, ...] = ()
    label: str | None = None
    new: tuple[Source, ...] = ()
    id_column: str = "id"
    options: ReadingOptions = AS_FOUND
    models: Path | None = None

    @property
    def identities(self) -> Mapping[str, PublicIdentity]:
        """Public keys of all members: those of the roster, where there is one."""
        if self.roster is None:
            return self.members
        return {name: member.identity for name, member in self.roster.members.items()}

    def open_party(self, told: Fields, memory: Memory, run: str = "") -> SavingParty:
        """Make the party of a run, or refuse with a reason.

        Parameters
        ----------
        told
            As `Task.told` makes it.
        memory
            The run's random values; empty, or from before a restart.
        run
            Its name, which is signed in tasks that only a party may hand in.
        """
        task = told_task(told)
        self._check_members(task.parties)
        if self.roster is not None and self.pins is not None:
            self.pins.insist(self.roster)
        # Where only the submitter has set terms, careful defaults are the site's own.
        own = Terms() if self.roster is None and self.policy is None else OPEN
        consent = Consent(self.name, own, roster=self.roster, policy=self.policy, asked=task.terms)
        kind = job_kind_of(task)
        consent.check_kind(kind.name, allowed_by=kind.allowed_by)
        kind.check_consent(task, consent)
        kind.check_author(task, run, self.identities)
        return kind.open_party(task, self, consent, memory)

    def _check_members(self, parties: Iterable[str]) -> None:
        """Refuse a run with strangers, before anything is compared with them."""
        strangers = [party for party in parties if party not in self.identities]
        if strangers:
            where = "its keys" if self.roster is None else "its roster"
            raise ConfigError(
                f"knows no {' and no '.join(strangers)} by {where}; leave out who is no member any "
                "more, with a [[party]] in the config for each of the others, or hand the new "
                f"roster to {self.name}"
            )

    def model_with(self, fingerprint: str) -> Model:
        """A model that it got in some run, by its fingerprint in hex digits."""
        folder = self.models
        for path in sorted(folder.glob("*/model.npz")) if folder is not None else []:
            model = load_model(path)
            if model.fingerprint.hex() == fingerprint:
                return model
        raise ConfigError(
            f"party {self.name} does not have the model that scores are asked of; take part in the "
            "run that trains it, or copy it there"
        )

    def new_samples(self, model: Model) -> list[Samples]:
        """Its new samples with the model's features, as far as its policy offers the columns."""
        if not self.new:
            raise ConfigError(
                f"party {self.name} has no table of new samples; its owner names one with 'weft "
                "join --new'"
            )
        offered = None if self.policy is None else self.policy.columns
        return [
            read_samples(
                path,
                model,
                id_column=self.id_column,
                party=self.name,
                options=self.options,
                offered=offered,
            )
            for path in self.new
        ]

    def training_tiles(self, task: TrainingTask) -> tuple[list[Tile], list[str]]:
        """Its tiles as a run trains on them, and what was found in them, in words for others.

        Raises
        ------
        DataError
            They cannot be trained on.
        """
        examined = self.examined
        held = {self.options.named(name) for file in examined for name in file.header}
        # What is declared for all is for those who have the column.
        rules = {n: rule for n, rule in decode_rules(task.columns).items() if n in held}
        if rules:
            declared = {**rules, **(self.options.columns or {})}
            options = msgspec.structs.replace(self.options, columns=declared)
            examined = tuple(self._examine(options))
        tiles = self.plain_tiles() if examined is self.examined else offered_tiles(examined)
        if task.positive is not None:
            tiles = tuple(two_classes(tile, task.positive) for tile in tiles)
        settled = self.settled(tiles, task.preprocessing.missing)
        notes = told_notes(examined)
        for tile in tiles:
            notes += [f"{one.harmless}, which count as declared" for one in find_blanks(tile)]
        return settled, notes

    def plain_tiles(self) -> tuple[Tile, ...]:
        """Its tiles as they are; refused where columns are no numbers that nobody declared."""
        insist(finding for file in self.examined for finding in file.findings)
        return self.tiles

    def _examine(self, options: ReadingOptions) -> list[Examined]:
        return examine_offered(
            self.files,
            self.policy,
            id_column=self.id_column,
            label=self.label,
            party=self.name,
            options=options,
        )

    def settled(self, tiles: Sequence[Tile], missing: MissingPolicy) -> list[Tile]:
        """Tiles without blank cells."""
        return [settle_missing(tile, missing, self.name) for tile in tiles]


def load_member(
    name: str,
    files: list[Source],
    *,
    id_column: str,
    label: str | None,
    keys: Path,
    ledger: Ledger,
    options: ReadingOptions = AS_FOUND,
    roster: Path | None = None,
    policy: Path | None = None,
    pins: RosterPins | None = None,
    new: Sequence[Source] = (),
    models: Path | None = None,
) -> SiteMember:
    """Read everything a site brings; mistakes show here, before anything is connected."""
    signed = None if roster is None else read_roster(roster)
    if signed is not None and pins is not None:
        pins.admit(signed)
    # Without a roster, careful defaults apply to what the site's policy leaves open.
    base = Terms() if signed is None else OPEN
    own = None if policy is None else read_policy(policy, base)
    found = load_keys(keys, name)
    examined = examine_offered(
        files, own, id_column=id_column, label=label, party=name, options=options
    )
    tiles = offered_tiles(examined, declarable=True)
    if not tiles:
        raise ConfigError(f"party {name} has no data; name its file with --data")
    consent = Consent(name, roster=signed, policy=own)
    rows = sum(tile.n for tile in tiles)
    labelled = any(tile.labelled.any() for tile in tiles)
    consent.check_own(found.identity.public, rows, labels=labelled)
    # From here on refusals go to others, so they must not name local files.
    kept = None if own is None else replace(own, source="")
    findings = [finding for file in examined for finding in file.findings]
    notes = tuple(finding.sentence() for finding in findings)
    _check_new(new, id_column, name, options)
    return SiteMember(
        name,
        tiles,
        found,
        read_public(keys).members,
        ledger,
        signed,
        kept,
        pins,
        notes,
        examined=tuple(examined),
        files=tuple(files),
        label=label,
        new=tuple(new),
        id_column=id_column,
        options=options,
        models=models,
    )


def _check_new(
    paths: Sequence[Source], id_column: str, party: str, options: ReadingOptions
) -> None:
    """Refuse tables of new samples that cannot be opened; what else is wrong a model must tell."""
    for path in paths:
        held = table_columns(path, options)
        if held is not None and id_column not in held:
            raise DataError(
                f"party {party}: {path.name} has no column '{id_column}' of ids"
                f"{closest(id_column, held)}; --id names it for all tables of a site"
            )


def examine_offered(
    files: Sequence[Source],
    policy: SitePolicy | None,
    *,
    id_column: str,
    label: str | None,
    party: str,
    options: ReadingOptions = AS_FOUND,
) -> list[Examined]:
    """A site's files with the columns of its policy; without one, with all columns.

    A column that is not offered is not even read: it may hold text.

    Raises
    ------
    ConfigError
        The policy offers a column that no file has.
    DataError
        A file cannot be opened, or has none of the columns.
    """
    columns = None if policy is None else policy.columns
    kept: list[list[str] | None] = [None] * len(files)
    if columns is not None:
        held = [_held(path, id_column, label, party, options) for path in files]
        _check_known(columns, held, party, policy.source if policy else "")
        kept = [[name for name in names if name in columns] for names in held]
        for path, names in zip(files, kept, strict=True):
            if not names:
                raise DataError(
                    f"party {party}: {path.name} has none of the columns that its policy offers; "
                    "leave the file out"
                )
    examined = [
        examine(
            path,
            id_column=id_column,
            label_column=label,
            features=names,
            party=party,
            options=options,
        )
        for path, names in zip(files, kept, strict=True)
    ]
    if examined:
        examined[0] = with_findings(examined[0], absent_columns(options, examined, party))
    return examined


def offered_tiles(examined: Sequence[Examined], *, declarable: bool = False) -> tuple[Tile, ...]:
    """The tiles of files in which nothing is wrong; else an error with all that is.

    ``declarable``: columns that are no numbers are not wrong yet, for a study may declare them.
    """
    found = [finding for file in examined for finding in file.findings]
    if not declarable or not all(one.declarable or one.severity == "note" for one in found):
        insist(found)
    return tuple(file.tile for file in examined if file.tile is not None)


def told_notes(examined: Sequence[Examined]) -> list[str]:
    """What was found in files, in words for others, without values, ids and counts."""
    found = (finding.harmless for file in examined for finding in file.findings)
    return list(dict.fromkeys(said for said in found if said))


def _held(
    path: Source, id_column: str, label: str | None, party: str, options: ReadingOptions
) -> list[str]:
    """Names of the feature columns of a file."""
    names = table_columns(path, options)
    if names is not None:
        return [name for name in names if name not in (id_column, label)]
    # Other formats hold only numbers; reading the file reports what is wrong with it.
    tile = read_tile(path, id_column=id_column, label_column=label, party=party, options=options)
    return list(tile.features)


def _check_known(
    columns: Sequence[str], held: Sequence[Sequence[str]], party: str, source: str
) -> None:
    known = [name for names in held for name in names]
    for name in columns:
        if name not in known:
            raise ConfigError(
                f"party {party}: its policy {source} offers the column '{name}', which none of "
                f"its files has{closest(name, known)}; correct the name, or leave it out"
            )
