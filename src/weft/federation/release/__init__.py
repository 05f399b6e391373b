"""The release of a model: sealed slices from the parties, a head from the coordinator."""
