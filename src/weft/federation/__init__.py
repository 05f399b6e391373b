"""One run from start to end: set-up, the party, the coordinator, the release of the model, and prediction."""
