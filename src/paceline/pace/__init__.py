"""How long a step takes: few physical figures, an analytic model, predictions with intervals.

Pure arithmetic of plain data. Where the figures come from is the business of those who call: a run
or a log (`report/remedies/job.py`), a recipe or a catalogue (`plan/`).
"""
