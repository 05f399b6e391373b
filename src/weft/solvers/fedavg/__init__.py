"""Local steps of gradient descent, averaged by feature: FedAvg, FedProx and linear HyFEM."""
