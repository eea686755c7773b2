"""What observing a script costs, and how right its verdicts are: see `__main__.py`."""
