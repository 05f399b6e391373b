"""Block-splitting ADMM: local projections, totals by feature and by sample."""
