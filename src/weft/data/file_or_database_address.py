"""Where a party's table comes from: a file, or a database by its address."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from urllib.parse import parse_qsl, urlsplit

from weft.errors import ConfigError

#: Suffixes of files that are databases.
DATABASES = (".duckdb", ".sqlite", ".sqlite3", ".db")
_SCHEMES = ("postgresql", "postgres")
_SECRET_KEYS = ("user", "password", "passfile", "sslpassword", "sslkey")
HOW_TO_LOG_IN = "give user and password in the environment (PGUSER, PGPASSWORD, or PGPASSFILE)"


@dataclass(frozen=True)
class Database:
    """A database by its address, which holds no credentials."""

    address: str

    def __post_init__(self) -> None:
        parts = urlsplit(self.address)
        if parts.scheme not in _SCHEMES:
            raise ConfigError(
                f"names a database of the kind '{parts.scheme}'; use postgresql://HOST/NAME, or a "
                f"file with one of the suffixes {', '.join(DATABASES)}"
            )
        keys = [key for key, _ in parse_qsl(parts.query)]
        if "@" in parts.netloc or any(key in _SECRET_KEYS for key in keys):
            # The address is not repeated: it holds a secret.
            raise ConfigError(
                "names a database with credentials in its address, where they can be read by "
                f"others; take them out, change the password, and {HOW_TO_LOG_IN}"
            )

    @property
    def name(self) -> str:
        """What messages call it."""
        return self.address


#: Where a party's table comes from.
Source = Path | Database


def source_of(text: str, folder: Path = Path()) -> Source:
    """An address, or a file; a relative one lies in ``folder``."""
    return Database(text) if "://" in text else folder / text


def is_database(source: Source) -> bool:
    """Whether a source is asked with a query."""
    return isinstance(source, Database) or source.name.lower().endswith(DATABASES)
