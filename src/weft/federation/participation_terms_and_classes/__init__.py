"""Before anything else: on which terms everybody takes part, and which classes there are."""
