"""Drawn photographs, in the very archives of the real ones."""
