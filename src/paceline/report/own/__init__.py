"""Reading a run directory of our own into facts."""
