"""Which versions of Weft can take part in one run."""

from __future__ import annotations

import re
from typing import Any

from weft import __version__
from weft.errors import ProtocolError

#: How far minor numbers may lie apart: sites are updated one after the other.
_APART = 1
#: Under which name a site's heartbeats say it, for those who look on; runs go by their own hello.
VERSION_PROPERTY = "weft_version"
_SHOWN = re.compile(r"[0-9A-Za-z.+-]{1,20}", re.ASCII)
_NUMBERS = re.compile(r"(\d{1,6})\.(\d{1,6})(?:\D.*)?", re.ASCII | re.DOTALL)


class OtherVersion(ProtocolError):
    """The other side runs a Weft that this one cannot work with."""


def check_version(theirs: str, whose: str, own: str = __version__) -> None:
    """Refuse another major version, and minor ones more than one apart.

    Parameters
    ----------
    theirs
        What the other side says of itself.
    whose
        Who that is, as a sentence has it.

    Raises
    ------
    OtherVersion
        A sentence with both versions.
    """
    if not _fit(theirs, own):
        raise OtherVersion(
            f"has Weft {own}, but {whose} has {theirs[:20]!r}; in one run minor versions may lie "
            f"{_APART} apart: update the older one"
        )


def _fit(one: str, other: str) -> bool:
    found = [_NUMBERS.fullmatch(version) for version in (one, other)]
    if None in found:
        return one == other
    (major, minor), (other_major, other_minor) = (
        tuple(map(int, match.groups())) for match in found if match is not None
    )
    return major == other_major and abs(minor - other_minor) <= _APART


def told_version(said: Any) -> str:
    """What a site says of itself, if it can be shown; else nothing."""
    return said if isinstance(said, str) and _SHOWN.fullmatch(said) else ""
