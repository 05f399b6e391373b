"""The FedHybrid paper's experiments."""
