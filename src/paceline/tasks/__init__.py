"""The tasks that Paceline ships, a folder each. What a task must do is in `contract.py`."""
