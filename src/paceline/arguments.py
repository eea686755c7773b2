"""What the parsers of all verbs are made of. No verb lives here."""

import argparse
import sys
from typing import NoReturn, TypeAlias

from paceline.errors import EXIT_USER_ERROR, UserError
from paceline.terminal import printable, say_on_stderr


class Parser(argparse.ArgumentParser):
    """argparse with our form of error: one message, exit code 2."""

    def error(self, message: str) -> NoReturn:
        self.exit(
            EXIT_USER_ERROR, f"error: {printable(message)}\n  fix: see `{self.prog} --help`\n"
        )

    def options_of(self, verb: str) -> list[str]:
        """The options of one of its verbs, as they are typed."""
        return list(self._verb(verb)._option_string_actions)

    def options_with_values(self, verb: str) -> dict[str, bool]:
        """The options of one of its verbs, and whether a value follows each."""
        actions = self._verb(verb)._option_string_actions
        return {name: action.nargs != 0 for name, action in actions.items()}

    def _verb(self, name: str) -> argparse.ArgumentParser:
        verbs = next(a for a in self._actions if isinstance(a, argparse._SubParsersAction))
        parser: argparse.ArgumentParser = verbs.choices[name]
        return parser


# What `add_subparsers` returns; verbs are added to it.
Verbs: TypeAlias = "argparse._SubParsersAction[Parser]"


def count(text: str) -> int:
    """A whole number from 1 up, for argparse."""
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number from 1 up")
    return int(text)


def hours(text: str) -> float:
    """A time above 0, for argparse."""
    try:
        value = float(text)
    except ValueError:
        value = 0.0
    if not 0 < value < float("inf"):
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of hours above 0")
    return value


def confirm(question: str, without_terminal: str) -> bool:
    """Whether the user says yes; where there is nobody to ask, what to do instead is said."""
    if not sys.stdin.isatty():
        raise UserError("this is asked first, and there is no terminal to ask on", without_terminal)
    say(f"{question} [y/N]")
    return sys.stdin.readline().strip().lower() in ("y", "yes")


def say(text: str) -> None:
    say_on_stderr(text)
