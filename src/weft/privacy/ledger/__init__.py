"""How many sums were opened and shown, over all runs, and how many the next run will take."""
