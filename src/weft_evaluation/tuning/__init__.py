"""Options of algorithms by trying them out: a random search, and which of its runs is best."""
