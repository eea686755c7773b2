"""`python -m paceline.selftest text|json quick|all DEVICE`: runs the checks and prints the page."""

import sys
import tempfile
from dataclasses import replace
from pathlib import Path

import torch

from paceline.errors import EXIT_USER_ERROR, UserError
from paceline.lifetime import die_with_parent
from paceline.selftest.bench import Bench
from paceline.selftest.checks import FAILED, run_checks
from paceline.selftest.page import (
    describe_machine,
    hidden_words,
    render_json,
    render_text,
    without_private,
)
from paceline.terminal import say_on_stderr
from paceline.world import choose_device, settle_this_process


def main() -> None:
    die_with_parent()
    form, extent, asked = sys.argv[1:4]
    settle_this_process()
    try:
        device = choose_device(asked, local_rank=0)
    except UserError as error:
        say_on_stderr(str(error))
        sys.exit(EXIT_USER_ERROR)
    with tempfile.TemporaryDirectory(prefix="paceline-selftest-") as folder:
        sys.exit(check_all(Bench(Path(folder), device, num_devices(device)), form, extent))


def check_all(bench: Bench, form: str, extent: str) -> int:
    results = run_checks(bench, extent == "quick", say_on_stderr)
    hidden = hidden_words(bench.folder)
    results = [replace(each, text=without_private(each.text, hidden)) for each in results]
    render = render_json if form == "json" else render_text
    sys.stdout.write(f"{render(describe_machine(bench), results)}\n")
    return int(any(result.outcome == FAILED for result in results))


def num_devices(device: torch.device) -> int:
    if device.type == "cuda":
        return torch.cuda.device_count()
    return 0 if device.type == "cpu" else 1


if __name__ == "__main__":
    main()
