"""What other readings of the papers' texts would cost, measured."""
