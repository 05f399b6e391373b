"""The experiments of the HyFDCA paper (Overman, Blum and Klabjan 2022, section 7)."""
