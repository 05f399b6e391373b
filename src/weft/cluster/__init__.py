"""Parties in several processes or on several machines of one owner, for simulations."""
