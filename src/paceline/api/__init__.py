"""Paceline in Python and in notebooks: train a run, open one, look at it, compare. No verbs."""
