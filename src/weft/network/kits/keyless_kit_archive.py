"""A kit without a key, which holds no secret, packed as one file to send."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from pathlib import Path

from weft.errors import ConfigError
from weft.network.kits.coordinator_move_letter import ADDRESS

#: What a kit's archive may hold; other names are refused, whatever path they would lead to.
_NAMES = {
    *(f"startup/fed_{kind}.json" for kind in ("server", "client", "admin")),
    "startup/server.crt",
    "startup/client.crt",
    "startup/rootCA.pem",
    f"startup/{ADDRESS}",
    "local/resources.json",
    "local/authorization.json",
    "local/comm_config.json",
    "local/log_config.json",
}
#: No file of a kit comes near this; a larger one was not made here.
_MOST_BYTES = 1_000_000


def write_archive(path: Path, files: Mapping[str, bytes]) -> None:
    """Write a new archive."""
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(handle, "w+b") as file, zipfile.ZipFile(file, "w") as archive:
        for name, content in files.items():
            archive.writestr(name, content)


def read_archive(path: Path) -> dict[str, bytes]:
    """The files of an archive that `write_archive` wrote."""
    again = "ask the organiser of the federation for it again"
    try:
        with zipfile.ZipFile(path) as archive:
            entries = archive.infolist()
            for entry in entries:
                if entry.filename not in _NAMES or entry.file_size > _MOST_BYTES:
                    raise ConfigError(
                        f"{path} holds {entry.filename!r}, which belongs into no kit; {again}"
                    )
            return {entry.filename: archive.read(entry) for entry in entries}
    except FileNotFoundError:
        raise ConfigError(f"there is no kit {path}; correct the path, or {again}") from None
    except IsADirectoryError:
        raise ConfigError(
            f"{path} is a folder, not an archive; a kit that came with its key is ready as it is"
        ) from None
    except OSError as error:
        raise ConfigError(f"{path} cannot be read ({error.strerror or error})") from None
    except (zipfile.BadZipFile, RuntimeError, NotImplementedError, EOFError):
        raise ConfigError(f"{path} is damaged or no kit; {again}") from None
