"""Matching: from tokens of ids and feature names to cohorts, holders and roles."""
