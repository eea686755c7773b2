"""Verbs that follow a run while it happens."""

import argparse
import sys
from pathlib import Path

from paceline.arguments import Verbs, say


def add_live(verbs: Verbs) -> None:
    watch = verbs.add_parser("watch", help="a run in the terminal, live: hosts, phases, curves")
    watch.add_argument("run", type=Path)
    watch.add_argument("--once", action="store_true", help="print one picture and end")
    watch.add_argument("--seconds", type=_seconds, default=1.0, help="between pictures (1)")
    watch.set_defaults(call=watch_run)
    board = verbs.add_parser("board", help="a run as a live page in the browser, and TensorBoard")
    board.add_argument("run", type=Path)
    board.add_argument(
        "--port", type=_port, default=0, help="on this machine (default: a free one)"
    )
    board.add_argument("--no-browser", action="store_true", help="only print the address")
    board.add_argument("--no-tensorboard", action="store_true", help="without TensorBoard")
    board.set_defaults(call=board_run)


def _seconds(text: str) -> float:
    try:
        seconds = float(text)
    except ValueError:
        seconds = 0.0
    if not 0.1 <= seconds <= 3600:
        raise argparse.ArgumentTypeError(f"'{text}' is not a number of seconds from 0.1 to 3600")
    return seconds


def _port(text: str) -> int:
    if not text.isdecimal() or not 0 <= int(text) < 65536:
        raise argparse.ArgumentTypeError(f"'{text}' is not a port from 1 to 65535")
    return int(text)


def watch_run(arguments: argparse.Namespace) -> int:
    from paceline.terminal import can_redraw, console_of
    from paceline.watch.live import open_run
    from paceline.watch.screen import show, watch

    live, console = open_run(arguments.run), console_of(sys.stdout)
    if live.is_going_on() and can_redraw(sys.stdout) and not arguments.once:
        watch(live, console, arguments.seconds)
    show(live, console)
    return 0


def board_run(arguments: argparse.Namespace) -> int:
    from paceline.board.server import Board
    from paceline.watch.live import open_run

    live = open_run(arguments.run)
    with Board(live, arguments.port, with_tensorboard=not arguments.no_tensorboard) as board:
        print(board.address, flush=True)
        say("Ctrl-C ends it")
        if not arguments.no_browser:
            import webbrowser

            webbrowser.open(board.address)
        board.serve()
    return 0
