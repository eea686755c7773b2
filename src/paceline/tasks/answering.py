"""A process of our own that answers on its standard output, from its start to a tidy end."""

import os
import signal
import sys
from collections.abc import Iterator
from contextlib import contextmanager

from paceline.errors import EXIT_USER_ERROR, UserError
from paceline.lifetime import die_with_parent
from paceline.world import settle_this_process


def say(text: str) -> None:
    sys.stderr.write(f"{text}\n")


@contextmanager
def answering() -> Iterator[None]:
    """Dies with the command that started it; mistakes, Ctrl-C and a closed pipe end it quietly."""
    die_with_parent()
    settle_this_process()
    try:
        yield
    except UserError as error:
        say(str(error))
        sys.exit(EXIT_USER_ERROR)
    except KeyboardInterrupt:
        sys.exit(128 + signal.SIGINT)
    except BrokenPipeError:
        # The reader (head, less) has seen enough; give Python nothing left to flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
