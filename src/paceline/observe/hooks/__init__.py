"""Where a script is watched: each module sets the hooks of one part of torch, or of a logger.

A hook calls the original with the very arguments it was given and returns its very result; what
the observer does before and after never raises.
"""

from typing import Any

from .. import imports


def wrap(owner: Any, name: str, make: Any) -> None:
    """Replace a function by what `make` makes of it; what is not there is noted and left out."""
    original = getattr(owner, name, None)
    if original is None:
        imports.note_failure(f"{getattr(owner, '__name__', owner)} has no {name}")
        return
    replacement = make(original)
    for attribute in ("__name__", "__qualname__", "__doc__", "__module__"):
        try:
            setattr(replacement, attribute, getattr(original, attribute))
        except (AttributeError, TypeError):
            continue
    replacement.__wrapped__ = original
    setattr(owner, name, replacement)
