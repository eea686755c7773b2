"""Naming hangs of a script on this machine, beside whoever waits for its end. It ends nothing."""

import socket
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from paceline.errors import Say
from paceline.launch.hang import HangNews, RankState, StepPace
from paceline.launch.script.hangs import HANG_SECONDS, ScriptHangs
from paceline.launch.script.vital_signs import VitalSigns
from paceline.terminal import printable

_EVERY_SECONDS = 1.0
RECORDED = {"TORCH_FR_BUFFER_SIZE": "256"}
"""How many collectives torch's flight recorder keeps, where the user has said nothing."""


@contextmanager
def naming_hangs(folder: Path, run: Path, say: Say) -> Iterator[None]:
    """`folder`: where the script's processes write their heartbeats."""
    over = threading.Event()
    thread = threading.Thread(target=_look_until, args=(over, folder, run, say), daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join(timeout=5)


def _look_until(over: threading.Event, folder: Path, run: Path, say: Say) -> None:
    signs, pace = VitalSigns(folder), StepPace()
    hangs = ScriptHangs(run, HANG_SECONDS, end_seconds=0)
    while not over.wait(_EVERY_SECONDS):
        _name_hang(signs, pace, hangs, say)


def _name_hang(signs: VitalSigns, pace: StepPace, hangs: ScriptHangs, say: Say) -> None:
    """Whatever goes wrong here leaves the script alone."""
    with suppress(OSError, KeyError, TypeError, ValueError):
        beats = signs.beats()
        pace.follow(beats)
        states = [RankState.of(socket.gethostname(), beat) for beat in beats]
        news = hangs.look(states, pace.slowest_seconds) if states else None
        if news is not None:
            signs.want_stacks()
            say(printable(_in_words(news, states)))


def _in_words(news: HangNews, states: list[RankState]) -> str:
    places = [f"  {state.place}, for {state.quiet_seconds:.0f} s" for state in states]
    heading = f"paceline: hang: {news.text}; where every process is:"
    return "\n".join([heading, *places, f"  {news.stacks}"])
