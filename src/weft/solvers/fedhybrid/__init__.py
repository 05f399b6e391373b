"""FedHybrid (Niu and Wei 2021): gradient-type and Newton-type parties in one primal-dual method."""
