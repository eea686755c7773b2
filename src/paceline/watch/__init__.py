"""A run while it happens: reading what is new, keeping the picture up to date, a terminal's view.

Never imports torch, and reads nothing but the run directory; so it works on any machine that sees
the directory, during a run, after it, and on a copy.
"""
