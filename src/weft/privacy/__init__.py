"""What parties agreed to, what they refuse, what each has seen over all runs, and audits of recordings."""
