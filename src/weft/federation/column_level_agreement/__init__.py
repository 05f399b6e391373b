"""Before matching: holders of a column declare it alike, and agree on the levels of categories."""
