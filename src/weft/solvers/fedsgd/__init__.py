"""Gradient descent on columns: vertical FedSGD and FedBCD."""
