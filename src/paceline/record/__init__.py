"""The run directory: the only interface between training and everything that looks at it.

Nothing here imports torch, so a report opens in a blink and on a machine that cannot train.
"""
