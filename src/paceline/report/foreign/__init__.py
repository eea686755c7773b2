"""Reports on runs of other tools, from the logs that they left.

`read` finds out which tool wrote a log; one module per tool turns it into a `ForeignRun`, which is
plain data; `answers` judges it. No torch, no TensorFlow.
"""

from paceline.report.foreign.answers import answers, answers_of_foreign, headline
from paceline.report.foreign.figures import plots_of
from paceline.report.foreign.read import is_foreign, read_foreign
from paceline.report.foreign.run import ForeignRun

__all__ = [
    "ForeignRun",
    "answers",
    "answers_of_foreign",
    "headline",
    "is_foreign",
    "plots_of",
    "read_foreign",
]
