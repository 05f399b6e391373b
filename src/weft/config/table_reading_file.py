"""How a site's tables are to be read, ``reading.toml``: the keys that ``[[party]]`` has for it.

.. code-block:: toml

    separator = ";"                      # where looking at the file does not tell
    rename = { "Alter" = "age" }         # column of the file = its name in the federation
    drop = ["remark"]
    classes = { "ja" = "1", "nein" = "0" }
"""

from __future__ import annotations

from pathlib import Path

from weft.config.strict_reading import checked, naming, read_toml
from weft.data.reading_options import ReadingOptions


def read_reading(path: Path) -> ReadingOptions:
    """Read and check such a file.

    Raises
    ------
    ConfigError
        One sentence that names the file and the key.
    """
    content = read_toml(path, f"there is no file {path}; write it, or leave --reading out")
    with naming(path.name):
        return checked(ReadingOptions, content, "the file")
