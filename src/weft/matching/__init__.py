"""Matching: from tokens of ids and feature names to cohorts, holders and roles."""

from weft.matching.build_holdings import build_holdings
from weft.matching.coordinator import meet
from weft.matching.holding_map import HoldingMap, Overlap
from weft.matching.party_view import PartyView

__all__ = ["HoldingMap", "Overlap", "PartyView", "build_holdings", "meet"]
