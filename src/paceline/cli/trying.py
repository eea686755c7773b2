"""The verb that tries a remedy for a few steps."""

import argparse
from pathlib import Path
from typing import TYPE_CHECKING

from paceline.arguments import Verbs, count, say

if TYPE_CHECKING:
    from paceline.launch.trial.remedy import Tried


def add_try(verbs: Verbs) -> None:
    trying = verbs.add_parser(
        "try", help="a few steps with a remedy of the report: predicted beside measured"
    )
    trying.add_argument("run", type=Path)
    trying.add_argument(
        "remedy", help="a name from the report (workers, batch, ...) or any setting, name=value"
    )
    trying.add_argument("--steps", type=count, help="with it, and as many without (default: 20)")
    trying.add_argument(
        "--hosts", type=Path, metavar="FILE", help="where to try it, if the run does not tell"
    )
    trying.add_argument("--json", action="store_true", help="for programs")
    trying.set_defaults(call=try_remedy)


def try_remedy(arguments: argparse.Namespace) -> int:
    import json
    from dataclasses import asdict

    from paceline.launch.trial import remedy
    from paceline.terminal import printable

    steps = arguments.steps or remedy.NUM_STEPS
    asked = remedy.Asked(arguments.run, arguments.remedy, steps, arguments.hosts)
    found = remedy.try_remedy(asked, say)
    if arguments.json:
        print(json.dumps({**asdict(found), "is_inside": found.is_inside}, indent=1))
    else:
        print(printable(in_words(found)))
    return 0


def in_words(found: "Tried") -> str:
    from paceline.pace.remedies import gain_in_words
    from paceline.units import format_seconds

    before, after = (format_seconds(s) for s in (found.seconds_before, found.seconds_after))
    steps = f"{found.num_steps} steps each from step {found.from_step:,} on"
    predicted = gain_in_words(found.predicted) if found.predicted else "not known"
    lines = [
        f"{found.name}: {found.text}" + (f" ({found.setting})" if found.setting else ""),
        f"  predicted  {predicted}",
        f"  measured   {found.measured:.2f} times as fast ({steps}: {before} a step as it was, "
        f"{after} with it)",
    ]
    if found.is_inside is False:
        lines.append("  The measurement is outside of the predicted interval; believe it.")
    if found.how and found.measured > 1:
        lines.append(f"  to do it: {found.how}")
    return "\n".join(lines)
