"""HyFEM: hybrid federated learning of networks (extra ``weft[neural]``)."""
