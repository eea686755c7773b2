"""Text that others wrote, made fit for a terminal: logs, events, what hosts and ssh print."""

_KEPT = "\n\t"


def printable(text: str) -> str:
    """The text with control characters as visible escapes, so that it cannot drive a terminal."""
    if text.isprintable():
        return text
    return "".join(_shown(letter) for letter in text)


def _shown(letter: str) -> str:
    if letter.isprintable() or letter in _KEPT:
        return letter
    return letter.encode("unicode_escape").decode("ascii")
