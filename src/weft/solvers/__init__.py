"""Algorithms: each written once against the channel and the three sums."""
