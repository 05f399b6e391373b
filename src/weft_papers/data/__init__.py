"""The papers' data sets from their original files, and the papers' ways to cut them."""
