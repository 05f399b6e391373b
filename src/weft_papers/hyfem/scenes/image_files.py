"""Original files of image sets, as arrays."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from weft.data.named_data_set_files import DATA_VARIABLE, DataFolder
from weft.errors import DataError

Bytes = NDArray[np.uint8]


def subfolder(folder: DataFolder, name: str, content: str) -> Path:
    """The folder of that name in a data directory; refuses where there is none.

    Parameters
    ----------
    content
        What belongs into it, for the refusal.
    """
    if folder.root is None:
        raise DataError(
            f"scene {folder.data_set!r} needs {content} in a folder {name} of a data directory; "
            f"set the environment variable {DATA_VARIABLE} to that directory or pass data_dir."
        )
    path = folder.root / name
    if not path.is_dir():
        raise DataError(
            f"scene {folder.data_set!r} needs the folder {path} with {content}, and there is none; "
            f"put it there, or set {DATA_VARIABLE} or data_dir to the directory that holds {name}."
        )
    return path


def read_image(path: Path, mode: str, size: tuple[int, int] | None = None) -> Bytes:
    """An image file as (height, width) for mode L, (height, width, 3) for RGB.

    Parameters
    ----------
    size
        Width and height to which it is scaled; None: as it is.
    """
    pillow = _pillow(path)
    try:
        with pillow.open(path) as picture:
            converted = picture if picture.mode == mode else picture.convert(mode)
            if size is not None and converted.size != size:
                converted = converted.resize(size, pillow.Resampling.BILINEAR)
            return np.asarray(converted, dtype=np.uint8)
    except (OSError, ValueError, SyntaxError) as error:
        raise DataError(f"{path}: not an image ({error}); get it again.") from error


def _pillow(path: Path) -> Any:
    # Imported late: it comes with matplotlib, which only the extra `report` installs.
    try:
        from PIL import Image
    except ImportError:
        raise DataError(
            f"{path}: reading images needs Pillow, which is not installed; pip install "
            "'weft[report]', which brings it along."
        ) from None
    return Image
