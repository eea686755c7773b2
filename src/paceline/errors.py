"""The one exception that is meant for the user.

Anything a user can put right is raised as `UserError`; the command line prints it without a
traceback and exits with 2. Programming errors stay ordinary exceptions.
"""

from collections.abc import Callable

EXIT_USER_ERROR = 2

Say = Callable[[str], None]
"""How a command tells its user what is no error: one line, or a few."""


class UserError(Exception):
    """What is wrong (and where), and what to do about it."""

    def __init__(self, what: str, fix: str = "") -> None:
        super().__init__(what)
        self.what = what
        self.fix = fix

    def __str__(self) -> str:
        return f"error: {self.what}" + (f"\n  fix: {self.fix}" if self.fix else "")
