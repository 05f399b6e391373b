"""Sealed training: parties compute on shares, and see no score, residual, label or weight."""
