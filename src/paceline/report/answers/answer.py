"""One answer of a report: a plain sentence, its figures, and how they were measured.

Everything that judges a run, ours or another tool's, gives a list of these; everything that renders
takes one. No file is read here and nothing is formatted for a terminal or a page.
"""

from dataclasses import dataclass, field
from typing import Any

QUESTIONS = {
    "duration": "How long did it take?",
    "trained": "Is it fully trained?",
    "overfitting": "Is it overfitting?",
    "busy": "Were the devices busy?",
    "network": "Was the network the bottleneck?",
    "input": "Was the input pipeline the bottleneck?",
    "verdict": "What held it up?",
    "rate": "What does the learning rate do?",
    "data": "How big is the training set?",
    "checkpoint": "What is in a checkpoint, and what does saving cost?",
    "step": "How long is a step?",
    "traffic": "How does that relate to network traffic?",
    "cost": "What did it cost?",
}
"""Key and wording of every question, in the order of a report."""
OF_EXCHANGE = "What did `reduce` cost and buy?"
"""Asked after these, with the key 'exchange', of runs that exchange otherwise than plain DDP."""
OF_ROLES = "What did chief, workers and servers do?"
"""Asked last, with the key 'roles', of runs whose processes have roles."""


@dataclass(frozen=True)
class Answer:
    key: str
    """A stable word for scripts, e.g. 'duration', 'verdict', 'traffic'."""
    question: str
    sentence: str
    """What a student can repeat. Where evidence is missing, it says that."""
    figures: dict[str, Any] = field(default_factory=dict)
    """Values that JSON can hold; names carry units."""
    how: str = ""
    """How the figures were measured."""
    missing: str = ""
    """What evidence is lacking and what would supply it; empty when the answer is whole."""
    remedy: str = ""
    """A command or setting that would help; empty when nothing needs help."""
