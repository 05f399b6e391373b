"""Matching: from tokens of ids and feature names to cohorts, holders and roles."""

from weft.matching.build_holdings import build_roster
from weft.matching.coordinator import meet
from weft.matching.holding_map import Overlap, Roster
from weft.matching.party_view import Seat

__all__ = ["Overlap", "Roster", "Seat", "build_roster", "meet"]
