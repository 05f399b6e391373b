"""Hypothesis for the tests of guards."""

import guarded  # noqa: F401  (registers the profile)
from hypothesis import settings

settings.load_profile("guards")
