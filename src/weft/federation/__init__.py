"""One run from start to end: set-up, party, coordinator, release of the model, prediction."""
