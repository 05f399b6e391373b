"""Reading a site's own policy, ``policy.toml``.

.. code-block:: toml

    min_batch = 20                       # any of the roster's terms, to be stricter
    allow_pairs = false
    losses = ["hinge", "logistic"]       # and limits on what is computed
    solvers = ["cutting-planes", "lbfgs"]
    most_problems = 30                   # values of lambda × (1 + folds)
    most_iterations = 300                # fast solvers take far fewer
    allow_exposure = true                # others may get as many sums as they lack columns
    columns = ["age", "dose"]            # over a network: columns offered, all others left out
    most_runs = 20                       # over a network: runs to take part in, all in all
    tell_columns = false                 # over a network: refuse without naming a column
"""

from __future__ import annotations

from pathlib import Path

import msgspec

from weft.config.strict_reading import checked, known_keys, naming, read_toml
from weft.errors import ConfigError
from weft.guards.privacy_terms import OPEN, Terms
from weft.privacy.agreement.limits_and_site_policy import Limits, SitePolicy


class _Own(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a policy says besides terms and limits."""

    columns: tuple[str, ...] | None = None
    most_runs: int | None = None
    tell_columns: bool = True

    def __post_init__(self) -> None:
        if self.columns is not None:
            if not self.columns:
                raise ConfigError("columns is empty; list the columns that the site offers")
            if len(set(self.columns)) < len(self.columns):
                twice = next(name for name in self.columns if self.columns.count(name) > 1)
                raise ConfigError(f"columns names '{twice}' twice; name it once")
        if self.most_runs is not None and self.most_runs < 1:
            raise ConfigError(f"most_runs is {self.most_runs}; give a whole number above 0")


def read_policy(path: Path, base: Terms = OPEN) -> SitePolicy:
    """Read and check a policy.

    Parameters
    ----------
    base
        What counts for terms that it does not mention: by default the widest, since a roster or a
        config has them.

    Raises
    ------
    ConfigError
        One sentence that names the file and the key.
    """
    content = read_toml(
        path, f"there is no policy {path}; write it, or leave policy out of its [[party]]"
    )
    kinds = (Terms, Limits, _Own)
    names = [[field.name for field in msgspec.structs.fields(kind)] for kind in kinds]
    known_keys(content, [name for group in names for name in group], f"{path.name}: the policy")
    given = [{key: content[key] for key in group if key in content} for group in names]
    with naming(path.name):
        terms = checked(Terms, {**msgspec.to_builtins(base), **given[0]}, "the policy")
        limits = checked(Limits, given[1], "the policy")
        own = checked(_Own, given[2], "the policy")
    return SitePolicy(
        terms,
        limits,
        columns=own.columns,
        most_runs=own.most_runs,
        tell_columns=own.tell_columns,
        source=path.name,
    )
