"""The metrics file of this process, and the metrics that a coordinator and a site have alike."""

from __future__ import annotations

import logging
import shutil
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path

from cryptography import x509

from weft import __version__
from weft.errors import WeftError
from weft.network.kits.kit_folder import Kit
from weft.network.metrics_text import Metric, single, write_metrics

log = logging.getLogger("weft.process")

_DAY = 86400.0


def machine_metrics(kit: Kit) -> Iterator[Metric]:
    """What a coordinator and a site have alike."""
    yield single("weft_info", "Version of Weft.", 1, version=__version__, kind=kit.kind)
    now = datetime.now(UTC)
    yield single("weft_written_seconds", "When this file was written.", int(now.timestamp()))
    free = shutil.disk_usage(kit.path).free
    yield single("weft_disk_free_bytes", "Free space where the kit lies.", free)
    values: list[tuple[dict[str, str], float]] = []
    for what, path in (("certificate", kit.certificate), ("authority", kit.authority)):
        found = x509.load_pem_x509_certificate(path.read_bytes())
        left = (found.not_valid_after_utc - now).total_seconds() / _DAY
        values.append(({"what": what}, round(left, 2)))
    yield Metric("weft_certificate_days_left", "Days until it expires.", [*values])


class MetricsFile:
    """The file of one process; what keeps it from being written later is logged once."""

    def __init__(self, path: Path, collect: Callable[[], list[Metric]]) -> None:
        self._path, self._collect = path, collect
        self._trouble = ""

    def write_first(self) -> None:
        """Write the file for the first time.

        Raises
        ------
        StorageError
            It cannot be written at all.
        """
        write_metrics(self._path, self._collect())

    def write_again(self) -> None:
        """Write what has changed."""
        try:
            write_metrics(self._path, self._collect())
            self._trouble = ""
        except (OSError, WeftError) as error:
            if str(error) != self._trouble:
                log.warning("metrics are not written: %s", error)
            self._trouble = str(error)
