"""The command line: verbs only. Parses, calls, prints; decides nothing.

Every verb imports what it needs when it runs, so that `--help` answers at once.
"""

import argparse
import os
import re
import shlex
import sys

from paceline import __version__
from paceline.arguments import Parser
from paceline.cli import data, jobs, live, new, plan, read, run, train, trying
from paceline.cli.machines import cloud, hosts, launch
from paceline.errors import EXIT_USER_ERROR, UserError
from paceline.task_finder import find_task, task_names
from paceline.terminal import print_what_cannot_be_as_another, say_on_stderr

_DOTTED_OPTION = re.compile(r"--([a-z0-9_]+(?:\.[a-z0-9_]+)+)(?:=(.*))?")


def build_parser() -> Parser:
    parser = Parser(
        prog="paceline",
        description="Train one model on one machine or many, and know why it took so long.",
    )
    parser.add_argument("--version", action="version", version=f"paceline {__version__}")
    verbs = parser.add_subparsers(dest="verb", metavar="VERB", required=True, parser_class=Parser)
    data.add_data(verbs)
    data.add_recipes(verbs)
    train.add_train(verbs)
    train.add_evaluate(verbs)
    run.add_run(verbs)
    new.add_new(verbs)
    for name in task_names():
        find_task(name).add_verbs(verbs)
    read.add_readers(verbs)
    plan.add_plan(verbs)
    trying.add_try(verbs)
    live.add_live(verbs)
    hosts.add_hosts(verbs)
    hosts.add_lab(verbs)
    jobs.add_jobs(verbs)
    launch.add_launch(verbs)
    train.add_selftest(verbs)
    cloud.add_cloud(verbs)
    return parser


def dotted_options_as_settings(words: list[str]) -> list[str]:
    """`--checkpoint.every_steps 50` means `checkpoint.every_steps=50`: only settings have dots."""
    settled: list[str] = []
    pending: str | None = None
    if "--" in words:  # what follows belongs to another command
        end = words.index("--")
        return [*dotted_options_as_settings(words[:end]), *words[end:]]
    for word in words:
        match = _DOTTED_OPTION.fullmatch(word)
        if pending is not None:
            settled.append(f"{pending}={word}")
            pending = None
        elif match and match.group(2) is None:
            pending = match.group(1)
        else:
            settled.append(f"{match.group(1)}={match.group(2)}" if match else word)
    return settled if pending is None else [*settled, pending]


def parse(words: list[str]) -> argparse.Namespace:
    """argparse wants all settings before the first option; a user writes them anywhere."""
    parser = build_parser()
    if words[:1] == ["run"]:
        return _parse_run(parser, words[1:])
    words = dotted_options_as_settings(words)
    if words[:1] == ["train"]:
        words = ["train", *_before_dashes(words[1:], parser.options_of("train"))]
    script: list[str] = []
    if words[:1] == ["launch"]:
        words, script = launch.split_script(words)
    arguments, rest = parser.parse_known_args(words)
    settings = [word for word in rest if "=" in word and not word.startswith("-")]
    strange = [word for word in rest if word not in settings]
    if strange or (settings and not hasattr(arguments, "settings")):
        inner = (
            words[1:2] if words[:1] in (["data"], ["hosts"], ["lab"], ["launch"], ["cloud"]) else []
        )
        told = shlex.join(["paceline", *words[:1], *inner, "--help"])
        raise UserError(f"unknown arguments: {' '.join(strange or settings)}", f"see `{told}`")
    if settings:
        arguments.settings = [*arguments.settings, *settings]
    if script:
        arguments.script = script
    return arguments


def _parse_run(parser: Parser, words: list[str]) -> argparse.Namespace:
    """What follows the script is the script's, whatever it looks like."""
    own, command, is_whole = run.split_words(words, parser.options_with_values("run"))
    arguments = parser.parse_args(["run", *own])
    arguments.command, arguments.is_whole = command, is_whole
    return arguments


def _before_dashes(words: list[str], options: list[str]) -> list[str]:
    from paceline.cli.words import options_as_settings

    end = words.index("--") if "--" in words else len(words)
    return [*options_as_settings(words[:end], options), *words[end:]]


def refuse_windows() -> None:
    """Before any verb imports what Windows lacks (fcntl, for one)."""
    if sys.platform == "win32":
        raise UserError(
            "Paceline runs on Linux and macOS, not on Windows itself",
            "use WSL, the Linux in Windows: run `wsl --install`, and install Paceline in there",
        )


def main() -> None:
    print_what_cannot_be_as_another()
    try:
        refuse_windows()
        arguments = parse(sys.argv[1:])
        code = arguments.call(arguments)
    except UserError as error:
        say_on_stderr(str(error))
        code = EXIT_USER_ERROR
    except KeyboardInterrupt:
        code = 130
    except BrokenPipeError:
        # The reader (head, less) has seen enough; give Python nothing left to flush.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        code = 0
    except OSError as error:
        from paceline.files import disk_problem

        problem = disk_problem(error)
        if problem is None:
            raise
        say_on_stderr(str(problem))
        code = EXIT_USER_ERROR
    sys.exit(code)
