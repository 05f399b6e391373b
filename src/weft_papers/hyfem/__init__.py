"""The experiments of both HyFEM texts: scenes, set-ups, runs and figures."""
