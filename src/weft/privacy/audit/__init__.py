"""Audits of recorded runs: what each side saw, and what it could read of that."""
