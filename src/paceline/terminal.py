"""Text from logs, events, host names and paths, made safe to print on a terminal."""

import re

_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f"  # control characters but tab and newline: ESC drives terminals
    "\u200e\u200f\u2028-\u202e\u2066-\u2069"  # what reorders a line or looks like its end
    "\ud800-\udfff]"  # half characters, from file names that are not UTF-8: print() fails
)


def printable(text: str) -> str:
    """The text with control characters spelled out: ESC becomes the six characters \\u001b.

    Newlines and tabs stay; collapse white space first where one line is wanted. The spelling is
    JSON's, so text that is JSON stays JSON with the same content.
    """
    return _UNPRINTABLE.sub(lambda match: f"\\u{ord(match[0]):04x}", text)
