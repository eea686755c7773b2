"""Experiment trackers of other people: a run's scalars and report in the run that is kept there."""
