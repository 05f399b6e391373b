"""HyFDCA: hybrid federated dual coordinate ascent (Overman, Blum and Klabjan, 2023)."""
