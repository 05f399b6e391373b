"""What parties agreed to and refuse, what each has seen over all runs, audits of recordings."""
