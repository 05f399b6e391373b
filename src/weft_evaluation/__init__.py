"""Algorithms side by side on the same tables, held against a judge who sees all of them.

A comparison is a simulation: pooling tables, solving centrally and training alone need all of them
in one hand. No party's ledger is written.
"""
