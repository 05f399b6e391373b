"""HyFEM's experiments on one accelerator: the networks of all parties in one call."""
