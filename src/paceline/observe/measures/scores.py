"""Which of a script's own score names are of validation data."""

import re

VALIDATION = "validation"
TEST = "test"
PROGRESS = "progress"
"""Of training as it goes on."""

_WORDS = re.compile(r"[A-Za-z]+")
_OF_VALIDATION = frozenset(("val", "valid", "validation", "eval", "evaluation", "dev"))


def split_of(name: object) -> str:
    words = {word.lower() for word in _WORDS.findall(str(name))}
    if words & _OF_VALIDATION:
        return VALIDATION
    return TEST if "test" in words else PROGRESS
