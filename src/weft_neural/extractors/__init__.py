"""Feature extractors by name: networks that turn one block of a sample into a vector.

Options are checked without torch; only making an extractor loads it.
"""

from weft_neural.extractors.registry import (
    EXTRACTORS,
    Entry,
    feature_count,
    make_extractor,
    read_extractor_options,
    register_extractor,
)

__all__ = [
    "EXTRACTORS",
    "Entry",
    "feature_count",
    "make_extractor",
    "read_extractor_options",
    "register_extractor",
]
