"""Errors that a user can act on: one sentence, no traceback on the command line."""

from __future__ import annotations


class WeftError(Exception):
    """A mistake in data, configuration or use.

    The message is one sentence that names the party, file, column or sample, says what is
    wrong and what to do about it. The command line prints it and exits with code 2.

    Parameters
    ----------
    reason
        The message.
    told
        What may leave the machine of it; by default all. A reason that counts samples, columns or
        holders must have one that does not: whoever asks for a run could work out sizes from it.
    """

    def __init__(self, reason: str = "", *, told: str | None = None) -> None:
        super().__init__(reason)
        self.told = reason if told is None else told


class DataError(WeftError):
    """Something in a table, a tile or a file cannot be trained on.

    Parameters
    ----------
    harmless
        What a site may say of it to others, to be read after the site's name: which column, and
        what kind of problem; never a value, an id or a count. Empty: nothing.
    """

    def __init__(self, reason: str = "", *, told: str | None = None, harmless: str = "") -> None:
        super().__init__(reason, told=told)
        self.harmless = harmless


class ConfigError(WeftError):
    """A setting is missing, misspelt or out of range."""


class ProtocolError(WeftError):
    """A message that does not fit the run: malformed, out of range or out of order."""


class PartyAway(ProtocolError):
    """A run cannot go on without a party that does not answer now; it may answer later."""
