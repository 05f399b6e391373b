"""The papers' experiments, set up from Weft's own parts."""
