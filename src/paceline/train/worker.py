"""What each process of a run executes: `python -m paceline.train.worker RUN`.

Signals are caught before torch is imported, because that takes seconds and Ctrl-C does not wait.
"""

import os
import signal
import sys
from pathlib import Path
from types import FrameType
from typing import NoReturn

_stop_asked = False


def _ask_to_stop(_number: int, _frame: FrameType | None) -> None:
    global _stop_asked  # noqa: PLW0603  (a signal handler has nowhere else to write)
    _stop_asked = True


def stop_asked() -> bool:
    return _stop_asked


def main() -> None:
    catch_signals()
    from paceline.lifetime import die_with_parent  # noqa: PLC0415
    from paceline.terminal import outlive_terminal  # noqa: PLC0415

    die_with_parent()
    outlive_terminal()
    work(Path(sys.argv[1]))


def catch_signals() -> None:
    signal.signal(signal.SIGTERM, _ask_to_stop)
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the launcher decides what Ctrl-C means


def work(run_path: Path) -> NoReturn:
    """To the end of the run, and of this process; what went wrong is recorded for the agent."""
    from torch.distributed.elastic.multiprocessing.errors import get_error_handler  # noqa: PLC0415

    from paceline.errors import EXIT_USER_ERROR, UserError  # noqa: PLC0415

    handler = get_error_handler()
    handler.initialize()
    try:
        run_worker(run_path)
    except UserError as error:
        handler.record_exception(error)
        leave_at_once(EXIT_USER_ERROR)
    except BaseException as error:
        handler.record_exception(error)  # the agent shows the first failure of all, and only that
        leave_at_once(1)


def leave_at_once(code: int) -> NoReturn:
    """Skip interpreter shutdown: it takes a second, and destructors may wait for others."""
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)


def run_worker(run_path: Path) -> NoReturn:
    from paceline import recipe as recipes  # noqa: PLC0415
    from paceline import world as worlds  # noqa: PLC0415
    from paceline.machine.compiler import keep_compiler_out  # noqa: PLC0415
    from paceline.order import WorkerOrder  # noqa: PLC0415
    from paceline.record.schema import RunDirectory  # noqa: PLC0415
    from paceline.task_finder import find_task  # noqa: PLC0415
    from paceline.train.attempt import Attempt  # noqa: PLC0415
    from paceline.train.guard import naming_lack_of_memory  # noqa: PLC0415
    from paceline.train.watchdog import start_pulse  # noqa: PLC0415

    run = RunDirectory(run_path)
    order = WorkerOrder.from_environment()
    recipe = recipes.from_run(Path(order.recipe) if order.recipe else run.recipe)
    if not recipe.compile:
        keep_compiler_out()
    pulse = start_pulse(order.pulse_directory, worlds.rank_in_world(order), stop_asked)
    worlds.settle_this_process(recipe.deterministic)
    if recipe.strategy.has_servers:
        from paceline.strategies.member import Member  # noqa: PLC0415

        reason = Member(recipe, run, order, stop_asked).live(pulse)
        if pulse is not None:
            pulse.end(reason)
        leave_at_once(0)
    world = worlds.join(recipe.device, recipe.guard.group_seconds, order)
    with naming_lack_of_memory(world, recipe.batch.micro):
        task = find_task(recipe.workload).open(recipe, world.device)
        attempt = Attempt(recipe, run, task, world)
    if pulse is not None:
        pulse.watch(
            attempt.recorder.clock,
            lambda: attempt.state.progress.step,
            lambda: attempt.stepper.watch.last_bucket_ready,
            attempt.most_bytes_of_step(),
        )
    with naming_lack_of_memory(world, recipe.batch.micro, attempt.recorder.clock):
        reason = attempt.live(order, stop_asked)
    if pulse is not None:
        pulse.end(reason)
    world.leave()
    leave_at_once(0)


if __name__ == "__main__":
    main()
