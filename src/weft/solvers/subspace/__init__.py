"""Cutting planes: certified training for hinge-like losses when everyone takes part."""
