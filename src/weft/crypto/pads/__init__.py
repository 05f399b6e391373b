"""Pads: the streams of words that hide blocks, and the public record of which are in a total."""
