"""Weft over a real network: one process per party, through an existing engine."""
