"""What a run tells people: history, summary, plots, results folder, who holds and who saw what."""
