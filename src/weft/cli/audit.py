"""``weft audit``: what each side saw of a recorded run, and whether it was hidden."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from rich.table import Table

    from weft.crypto.party_key_pairs import PublicIdentity
    from weft.privacy.audit.audit_of_a_recording import Audit, Line

_MOST_PARTIES = 40
_MOST_FIELDS = 4
#: What an audit that found something ends with: not a mistake in its use, which is 2.
_UNSOUND = 1


def audit(
    run: Annotated[
        Path,
        typer.Argument(
            help="Folder of a run with --record (results, or the coordinator's KIT/weft/runs/RUN), "
            "or the recording itself."
        ),
    ],
    party: Annotated[
        str | None, typer.Option(metavar="NAME", help="Show what this party got, line by line.")
    ] = None,
    roster: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="The signed roster, by whose keys parties signed."),
    ] = None,
    keys: Annotated[
        Path | None,
        typer.Option(metavar="FOLDER", help="In the place of a roster: keys of all parties."),
    ] = None,
    json: Annotated[bool, typer.Option("--json", help="Print one JSON object only.")] = False,
) -> None:
    """Show what each side saw of a recorded run, and check that it was hidden.

    The first table lists all that came to the coordinator: hidden is what it cannot read
    (encrypted sums, masked scalars, tokens, sealed boxes), public what everybody may know, dealer's
    what it shares with one party as the dealer of sealed training, READABLE what it should not have
    been able to read. The second says how many values each party could
    open. With --party the table is that party's: what it was told, and what it opens.

    Every block is parsed and looked at, not only counted: words that look like plain numbers,
    scalars without masks, blocks that come twice, slots of somebody else and fields that nobody
    knows are found. The exit code is then 1, else 0; cipher = "plain" ends with 1 too.

    Every party signs the hash of all that it was asked and said when it hands out its part of the
    model. It is computed anew from the recording; with --roster or --keys the signatures are
    checked by those keys, so that the recording shows what the parties themselves say they saw. A
    party that did not sign, and messages that its signature does not cover, are then findings too:
    of a run of weft train --resume, all before it was resumed. Runs over a network are recorded by
    their coordinator (weft serve --record), and whole also where it or a party was killed.
    """
    from weft.cli.terminal_output import say_json
    from weft.errors import ConfigError
    from weft.privacy.audit.audit_of_a_recording import audit as go_through
    from weft.protocol.recording_file import MESSAGES, Recording

    if run.is_dir() and not (run / MESSAGES).exists():
        raise ConfigError(
            f"{run} holds no recording; train again with --record, or over a network let the "
            "coordinator run weft serve --record"
        )
    recording = Recording(run / MESSAGES if run.is_dir() else run)
    known = recording.head.parties
    if party is not None and party not in known:
        shown = ", ".join(known[:6]) + (" …" if len(known) > 6 else "")
        raise ConfigError(f"there was no party '{party}' in this run; choose one of {shown}")
    found = go_through(recording.head, recording.entries(), party, _identities(roster, keys))
    if json:
        say_json(found.to_dict())
    else:
        _show(found, party)
    if not found.sound:
        raise typer.Exit(_UNSOUND)


def _identities(roster: Path | None, keys: Path | None) -> dict[str, PublicIdentity]:
    """Public keys that somebody vouches for: all members of a roster, or of a folder of keys."""
    from weft.crypto.keys import read_public
    from weft.errors import ConfigError
    from weft.privacy.agreement import read_roster

    if roster is not None and keys is not None:
        raise ConfigError("--roster and --keys exclude each other; name one of them")
    if roster is not None:
        signed = read_roster(roster)
        signed.insist_on_signatures()
        return {name: member.identity for name, member in signed.members.items()}
    return {} if keys is None else dict(read_public(keys).members)


def _show(found: Audit, party: str | None) -> None:
    from rich.console import Console

    from weft.cli.terminal_output import say

    head = found.head
    say(
        f"{head.name}: {len(head.parties)} parties, cipher {head.cipher}, "
        f"{found.messages:,} messages, {_size(found.bytes)}",
        "",
    )
    console = Console(markup=False, highlight=False)
    if party is None:
        say("What the coordinator got from the parties")
        console.print(_lines(found.coordinator, coordinator=True))
        say("What the parties got")
        console.print(_parties(found))
    else:
        say(f"What party {party} got")
        console.print(_lines(found.party, coordinator=False))
        view = found.parties[party]
        whose = "every slot was its own" if view.own_slots else "NOT every slot was its own"
        say(
            f"Samples that it shares with others: {view.shared_rows:,}, features: "
            f"{view.shared_columns:,}; {whose}.",
            "",
        )
    say(*_checks(found), "", _verdict(found))


def _lines(lines: list[Line], *, coordinator: bool) -> Table:
    """Lines under the names of their phases."""
    from rich.box import SIMPLE_HEAD
    from rich.padding import Padding
    from rich.table import Table
    from rich.text import Text

    from weft.privacy.audit.audit_of_a_recording import ANY_PHASE

    grid = Table(box=SIMPLE_HEAD, padding=(0, 1, 0, 0), pad_edge=False)
    grid.add_column("phase, field", overflow="fold", max_width=18)
    grid.add_column("messages", justify="right", no_wrap=True)
    grid.add_column("bytes", justify="right", no_wrap=True)
    grid.add_column("what it is")
    grid.add_column("verdict", no_wrap=True)
    phases = list(dict.fromkeys(line.phase for line in lines))
    phases.sort(key=ANY_PHASE.__eq__)
    phase = ""
    for line in sorted(lines, key=lambda line: phases.index(line.phase)):
        if line.phase != phase:
            phase = line.phase
            grid.add_row(Text(phase, style="bold"))
        verdict = line.verdict(coordinator=coordinator)
        loud = "bold red" if verdict.isupper() else ""
        if verdict == "opens" and line.values:
            verdict = f"opens {line.values:,}"
        what = line.form if line.meaning is None else f"{line.form}: {line.meaning.what}"
        grid.add_row(
            Padding(_names(line.fields), (0, 0, 0, 2)),
            f"{line.messages:,}",
            _size(line.bytes),
            what,
            Text(verdict, style=loud),
        )
    return grid


def _names(fields: list[str]) -> str:
    shown = ", ".join(fields[:_MOST_FIELDS])
    return (
        shown if len(fields) <= _MOST_FIELDS else f"{shown} and {len(fields) - _MOST_FIELDS} more"
    )


def _parties(found: Audit) -> Table:
    from rich.box import SIMPLE_HEAD
    from rich.table import Table

    from weft.crypto.ciphers.cipher_arguments_and_results import WHAT

    kinds = [kind for kind in WHAT if any(kind in v.opened for v in found.parties.values())]
    grid = Table(
        box=SIMPLE_HEAD,
        padding=(0, 1, 0, 0),
        pad_edge=False,
        caption="opened: how many numbers it could decrypt, each a total over the holders",
    )
    grid.add_column("party", overflow="fold")
    for title in ("messages", "bytes", *(f"opened: {WHAT[kind]}" for kind in kinds)):
        grid.add_column(title, justify="right")
    grid.add_column("slots")
    for view in list(found.parties.values())[:_MOST_PARTIES]:
        grid.add_row(
            view.name,
            f"{view.messages:,}",
            _size(view.bytes),
            *(f"{view.opened.get(kind, 0):,}" for kind in kinds),
            "its own" if view.own_slots else "NOT ITS OWN",
        )
    if len(found.parties) > _MOST_PARTIES:
        grid.add_row(f"… and {len(found.parties) - _MOST_PARTIES} more")
    return grid


def _checks(found: Audit) -> list[str]:
    from weft.privacy.audit.audit_of_a_recording import CHECKS

    said = []
    states = set(found.signed.values())
    # What was not there to be checked is not called well.
    idle = set() if states - {"nothing"} else {"seen"}
    idle |= set() if states & {"verified", "wrong"} else {"signed"}
    idle |= set() if states == {"verified"} else {"covered"}
    for name, (well, wrong) in CHECKS.items():
        finding = found.findings.get(name)
        if finding is None and name in idle:
            continue
        if finding is None:
            said.append(f"✓ {well}")
        else:
            said.append(f"✗ {finding.count:,} {wrong}; first: {finding.example}")
    said += [f"- the coordinator was told {n:,} ×: {words}" for words, n in found.said.items()]
    return [*said, *_signatures(found)]


def _signatures(found: Audit) -> list[str]:
    """Who signed for these messages, and whose keys vouch for that."""
    words = {
        "verified": "signed the hash of these very messages, by keys that were given",
        "not vouched for": (
            "signed the hash of these very messages; --roster or --keys would check with which keys"
        ),
        "wrong": "the signature does not fit these messages",
        "in part": "signed the hash of a part of these messages only",
        "nothing": "did not sign for what it saw",
    }
    said = []
    for state, what in words.items():
        names = [name for name, found_state in found.signed.items() if found_state == state]
        if names:
            shown = ", ".join(names[:6]) + (f" and {len(names) - 6} more" if names[6:] else "")
            said.append(f"- {shown}: {what}")
    return said


def _verdict(found: Audit) -> str:
    head = found.head
    if found.sound:
        shown = "what is public, and the totals of scalars over all who were asked"
        if head.sees == "weights":
            shown += ", and the weights, as coordinator_sees = 'weights' says"
        said = f"Sound: the coordinator could read {shown}; no party got a slot of others."
        if found.moments:
            said += (
                f" Readers of the model also got second moments ({' and '.join(found.moments)}), "
                "sealed as the model is."
            )
        if any(line.verdict(coordinator=True) == "dealer's" for line in found.coordinator):
            said += (
                " It dealt the masks of sealed training: with a party's secrets, this recording "
                "shows all cells."
            )
        return said
    if set(found.findings) - {"hidden", "masked"}:
        return "UNSOUND: this run did not go as the protocol says; see the lines with ✗."
    if head.cipher == "plain":
        return "READABLE: cipher = 'plain' hides nothing; it is for simulation in one process."
    if head.sees == "papers":
        return "READABLE: coordinator_sees = 'papers' shows feature sums; it is for simulation."
    return "READABLE: the coordinator could read more than it should; see the lines with ✗."


def _size(count: int) -> str:
    """Bytes, in units that a person reads."""
    if count < 10_000:
        return f"{count:,} B"
    return f"{count / 1e3:,.1f} kB" if count < 1_000_000 else f"{count / 1e6:,.1f} MB"
