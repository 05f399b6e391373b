"""Reading a site's own policy, ``policy.toml``.

.. code-block:: toml

    min_batch = 20                       # any of the roster's terms, to be stricter
    allow_pairs = false
    losses = ["hinge", "logistic"]       # and limits on what is computed
    solvers = ["cutting-planes", "lbfgs"]
    most_problems = 30                   # values of lambda × (1 + folds)
    allow_exposure = false               # go on although the ledger warns
"""

from __future__ import annotations

import tomllib
from pathlib import Path

import msgspec

from weft.config.checking import checked, known_keys, naming
from weft.consortium.limits import Limits
from weft.consortium.policy import SitePolicy
from weft.errors import ConfigError
from weft.guards.terms import OPEN, Terms

_EXPOSURE = "allow_exposure"


def read_policy(path: Path) -> SitePolicy:
    """Read and check a policy.

    Raises
    ------
    ConfigError
        One sentence that names the file and the key.
    """
    try:
        content = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise ConfigError(
            f"there is no policy {path}; write it, or leave policy out of its [[party]]"
        ) from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror or error})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise ConfigError(f"{path.name}: is not valid TOML ({error}); correct that line") from None
    kinds = (Terms, Limits)
    names = [[field.name for field in msgspec.structs.fields(kind)] for kind in kinds]
    where = f"{path.name}: the policy"
    known_keys(content, [*names[0], *names[1], _EXPOSURE], where)
    exposure = content.get(_EXPOSURE, False)
    if not isinstance(exposure, bool):
        raise ConfigError(f"{where} {_EXPOSURE}: expected true or false")
    given = [{key: content[key] for key in group if key in content} for group in names]
    with naming(path.name):
        terms = checked(Terms, {**msgspec.to_builtins(OPEN), **given[0]}, "the policy")
        limits = checked(Limits, given[1], "the policy")
    return SitePolicy(terms, limits, exposure, path.name)
