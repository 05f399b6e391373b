"""A first policy for a site, from its tables: what it offers, and how the tables are read."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from weft.config.draft_config import columns_of
from weft.data.findings_with_config_fixes import Finding, by_severity, merged_settings, toml_line
from weft.data.read_tiles import examine
from weft.errors import ConfigError
from weft.guards.privacy_terms import Terms

#: Runs that a drafted policy allows, all in all.
_RUNS = 20
#: Iterations that it allows a run: plenty for the fast solvers.
_ITERATIONS = 300


@dataclass(frozen=True)
class SiteDraft:
    """Texts of a site's files, and what was found in its tables.

    Attributes
    ----------
    policy, reading
        The policy, and how the tables are read; empty: nothing needs to be said about that.
    columns
        Columns that the policy offers.
    """

    policy: str
    reading: str
    columns: tuple[str, ...]
    findings: list[Finding]


def draft_site_policy(
    name: str, files: Sequence[Path], id_column: str, label: str | None
) -> SiteDraft:
    """A policy that offers the columns of some tables, with a line for each thing to decide.

    Columns that look like more ids, such as numbers of insurances, are left out and named.

    Parameters
    ----------
    name
        Of the site.
    label
        Column of the labels; None: it has none.
    """
    examined = [
        examine(path, id_column=id_column, label_column=_held(path, label), party=name)
        for path in files
    ]
    findings = by_severity(one for file in examined for one in file.findings)
    mends = merged_settings(findings)
    reading = [
        line for section in mends if section.startswith("[[party]]") for line in mends[section]
    ]
    dropped = {
        column
        for one in findings
        if one.setting is not None and one.setting[0] == "drop"
        for column in one.setting[1]
    }
    known = dict.fromkeys(column for file in examined for column in file.header)
    others = [c for c in known if c not in {id_column, label}]
    naming = {column.name for path in files for column in columns_of(path) if column.names_rows}
    columns = tuple(c for c in others if c not in naming | dropped)
    if not columns:
        raise ConfigError(
            f"no column of {name} is left besides ids, labels and columns that name single rows; "
            "name its tables"
        )
    return SiteDraft(
        _policy(name, columns, [c for c in others if c in naming]),
        "\n".join(reading) + "\n" if reading else "",
        columns,
        findings,
    )


def _held(path: Path, label: str | None) -> str | None:
    """The label column, where a table has it: a site may have it in one of several."""
    return label if any(column.name == label for column in columns_of(path)) else None


def _policy(name: str, columns: Sequence[str], naming: Sequence[str]) -> str:
    apart = (
        [
            "# Not offered, since every row has another value, as of ids; add what is measured:",
            f"# {', '.join(naming)}",
        ]
        if naming
        else []
    )
    return "\n".join(
        [
            f"# What {name} takes part in, whatever the others agreed. Read every line.",
            "",
            "# Columns that runs may use: take out what is not to be offered.",
            toml_line("columns", list(columns)),
            *apart,
            "# Samples that change between any two feature sums that others see, at least.",
            toml_line("min_batch", Terms().min_batch),
            "# Runs to take part in, all in all.",
            toml_line("most_runs", _RUNS),
            "# Iterations of one run, of all λ together: studies say iterations = … in [solver].",
            toml_line("most_iterations", _ITERATIONS),
            '# Kinds of runs: "check" tells submitters how many samples which parties share,',
            '# "describe" means and distributions of columns; "predict" lets parties ask for joint',
            "# scores.",
            toml_line("kinds", ["linear"]),
            "# Who may ask for scores: over a network nobody, unless named here or in the roster;",
            "# of how many samples of this site at once, and how many scores in all.",
            '# askers = ["…"]',
            "# least_asked = 10",
            "# most_asked = 1000",
            "# most_scores = 10000",
            "# Refuse without naming the column that cannot be used.",
            "# tell_columns = false",
            "",
        ]
    )
