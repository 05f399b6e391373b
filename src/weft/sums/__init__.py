"""The three sums: over samples, over features, and of scalars; scaling and certificates on them."""
