"""Matching of classifiers (Appendix A of the 2024 text): arrays in, arrays out, no PyTorch."""

from weft.array_types import Ints
from weft_neural.neuron_matching.classifier_arrays import Floats, Matched, pruned
from weft_neural.neuron_matching.rematch_each_party_in_turn import match_classifiers
from weft_neural.neuron_matching.settings import Matching

__all__ = ["Floats", "Ints", "Matched", "Matching", "match_classifiers", "pruned"]
