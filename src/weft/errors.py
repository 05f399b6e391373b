"""Errors that a user can act on: one sentence, no traceback on the command line."""

from __future__ import annotations


class WeftError(Exception):
    """A mistake in data, configuration or use.

    The message is one sentence that names the party, file, column or sample, says what is
    wrong and what to do about it. The command line prints it and exits with code 2.
    """


class DataError(WeftError):
    """Something in a table, a tile or a file cannot be trained on."""


class ConfigError(WeftError):
    """A setting is missing, misspelt or out of range."""


class ProtocolError(WeftError):
    """A message that does not fit the run: malformed, out of range or out of order."""


class PartyAway(ProtocolError):
    """A run cannot go on without a party that does not answer now; it may answer later."""
