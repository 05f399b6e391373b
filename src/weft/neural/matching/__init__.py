"""Matching of classifiers (Appendix A of the 2024 text): arrays in, arrays out, no PyTorch."""

from weft.neural.matching.classifiers import Floats, Ints, Matched, pruned
from weft.neural.matching.procedure import match_classifiers
from weft.neural.matching.settings import Matching

__all__ = ["Floats", "Ints", "Matched", "Matching", "match_classifiers", "pruned"]
