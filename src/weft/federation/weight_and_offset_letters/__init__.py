"""Sample weights and offsets, in letters from whoever has them to those who have labels."""
