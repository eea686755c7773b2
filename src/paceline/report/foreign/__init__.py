"""Reading logs of other tools into facts. No torch, no TensorFlow.

`read` finds out which tool wrote a log; one module per tool turns it into a `ForeignRun`;
`as_facts` makes of that what answers judge.
"""

from paceline.report.foreign.read import is_counters, is_foreign, read_foreign, read_log
from paceline.report.foreign.run import ForeignRun

__all__ = ["ForeignRun", "is_counters", "is_foreign", "read_foreign", "read_log"]
