"""20 Newsgroups as a sparse table of tf-idf weights."""

from __future__ import annotations

import hashlib
import os
import tarfile
from pathlib import Path
from typing import Literal, cast

import numpy as np
import scipy.sparse as sp

from weft.data.named_data_set_files import DataFolder
from weft.data.tile import Names, Sparse, Table
from weft.errors import DataError
from weft.storage.atomic_files import replacing

_ARCHIVE = "newsgroups/20_newsgroups.tar.xz"
_POSITIVE = ("comp.", "misc.", "rec.")


def newsgroups(
    folder: DataFolder,
    ngrams: tuple[int, int] = (1, 2),
    target: Literal["binary", "groups"] = "binary",
    cache_dir: str | os.PathLike[str] | None = None,
) -> Table:
    """20 Newsgroups: tf-idf of the texts without their headers, which name the group.

    Parameters
    ----------
    folder : DataFolder
        Where the original archive is.
    ngrams : pair of int
        Shortest and longest run of words that makes a feature; (1, 2) gives 1.6 million.
    target : {"binary", "groups"}
        "binary": +1 for the ten groups comp.*, misc.* and rec.*, -1 for the ten groups alt.*,
        sci.*, soc.* and talk.*. "groups": the name of the group.
    cache_dir : path, optional
        Folder in which the parsed weights are kept; the next load takes a fraction of the
        time.
    """
    if target not in ("binary", "groups"):
        raise DataError(f"newsgroups has no target {target!r}; choose 'binary' or 'groups'.")
    archive = folder.file(_ARCHIVE)
    cache = None if cache_dir is None else _cache_file(Path(cache_dir), archive, ngrams)
    if cache is not None and cache.is_file():
        weights, features, groups = _load_cache(cache)
    else:
        weights, features, groups = _parse(archive, ngrams)
        if cache is not None:
            cache.parent.mkdir(parents=True, exist_ok=True)
            _save_cache(cache, weights, features, groups)
    if target == "groups":
        labels = np.array(groups, dtype=object)
    else:
        labels = np.array([1 if group.startswith(_POSITIVE) else -1 for group in groups])
    ids = np.array([str(row) for row in range(len(groups))], dtype=object)
    return Table(ids, features, weights, labels, "classification", "newsgroups")


def _parse(archive: Path, ngrams: tuple[int, int]) -> tuple[Sparse, Names, list[str]]:
    # Imported late: scikit-learn takes a second to load and most runs do not need it here.
    from sklearn.feature_extraction.text import TfidfVectorizer

    texts, groups = [], []
    try:
        with tarfile.open(archive) as tar:
            for member in tar:
                stream = tar.extractfile(member)
                if stream is not None:
                    # latin-1 decodes every byte; the posts predate any agreed encoding.
                    text = stream.read().decode("latin-1")
                    texts.append(text.partition("\n\n")[2])
                    groups.append(Path(member.name).parent.name)
    except (tarfile.TarError, EOFError, OSError) as error:
        raise DataError(
            f"{archive}: not a complete archive ({error}); download it again."
        ) from error
    vectorizer = TfidfVectorizer(ngram_range=tuple(ngrams))
    weights = cast("Sparse", sp.csr_array(vectorizer.fit_transform(texts)))
    weights.sort_indices()
    return weights, vectorizer.get_feature_names_out(), groups


def _cache_file(cache_dir: Path, archive: Path, ngrams: tuple[int, int]) -> Path:
    """Name of the cache; the archive's digest in it keeps a changed archive apart."""
    digest = hashlib.sha256(archive.read_bytes()).hexdigest()[:12]
    return cache_dir / f"newsgroups-{ngrams[0]}-{ngrams[1]}-{digest}.npz"


def _save_cache(path: Path, weights: Sparse, features: Names, groups: list[str]) -> None:
    # One byte string with a line per word: a numpy text array would pad 1.6 million words
    # to the longest one.
    words = "\n".join(features.tolist()).encode()
    with replacing(path) as draft, draft.open("wb") as stream:
        np.savez(
            stream,
            data=weights.data,
            indices=weights.indices,
            indptr=weights.indptr,
            shape=np.array(weights.shape),
            features=np.frombuffer(words, dtype=np.uint8),
            groups=np.array(groups),
        )


def _load_cache(path: Path) -> tuple[Sparse, Names, list[str]]:
    with np.load(path, allow_pickle=False) as stored:
        rows, columns = stored["shape"].tolist()
        weights = sp.csr_array(
            (stored["data"], stored["indices"], stored["indptr"]), shape=(rows, columns)
        )
        words = stored["features"].tobytes().decode().split("\n")
        return weights, np.array(words, dtype=object), stored["groups"].tolist()
