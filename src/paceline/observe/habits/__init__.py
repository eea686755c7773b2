"""Habits of a script: what is counted, and what the observer is told of them."""
