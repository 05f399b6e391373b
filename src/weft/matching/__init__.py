"""Matching: from tokens of ids and feature names to cohorts, holders and roles."""

from weft.matching.building import build_roster
from weft.matching.meet import meet
from weft.matching.roster import Overlap, Roster
from weft.matching.seat import Seat

__all__ = ["Overlap", "Roster", "Seat", "build_roster", "meet"]
