"""What a run tells people: history, plot, summary, results folder, who holds and who saw what."""
