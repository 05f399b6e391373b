"""A live page about a federation, for whoever has a kit: local, and only to look at."""
