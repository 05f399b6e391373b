"""Weft's demos: one process, a network of processes, and neural networks."""
