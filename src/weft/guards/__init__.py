"""Guards against what sums reveal: what a federation agreed on, and what follows from it."""

from weft.guards.privacy_terms import OPEN, Terms

__all__ = ["OPEN", "Terms"]
