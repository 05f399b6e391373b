"""Statistics of a fitted model: standard errors, tests, intervals, from sums over all samples.

Nothing here knows of parties or messages. A party uses `row_sums` for its own rows; whoever
reads a model makes a `Summary` of what all parties' sums came to.
"""
