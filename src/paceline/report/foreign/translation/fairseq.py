"""fairseq, with its default, simple and JSON log formats:

    2021-01-01 12:00:00 | INFO | train_inner | epoch 001:    100 / 1500 loss=10.2, nll_loss=9.9,
      ppl=955, wps=25000, ups=3.5, wpb=7000, bsz=250, num_updates=100, lr=1.2e-05, train_wall=28
    2021-01-01 12:08:00 | INFO | valid | epoch 001 | valid on 'valid' subset | loss 5.3 | nll_loss
      3.8 | ppl 14 | wps 60000 | bleu 23.1 | num_updates 1500
    2021-01-01 12:00:00 | INFO | train_inner | {"epoch": 1, "update": 0.1, "loss": "10.2", ...}

`wps` are words per second since the last line, `wpb` words of a batch. Losses are in bits (base 2),
as fairseq prints them.
"""

import json
import re
from pathlib import Path

from paceline.report.foreign.reading.book import Book, Progress
from paceline.report.foreign.reading.contract import CERTAIN, NO, TextFormat
from paceline.report.foreign.reading.stamps import stamp_of
from paceline.report.foreign.reading.values import NUMBER, number, whole
from paceline.report.foreign.run import ForeignRun

TOOL = "fairseq"

_INNER = re.compile(
    r"epoch (\d+):?\s+(?:\d+%\|?[^|]*\|?\s*)?(\d+) ?/ ?(\d+) (?:\[[^,]*,[^,]*, )?(loss=[^\]]*)"
)
_VALID = re.compile(r"\| (?:valid on ')?(valid\w*|test)\b.*?\|")
_PAIR = re.compile(rf"\b([\w]+)[= ]+({NUMBER})(?=[,\s|)]|$)")
_JSON = re.compile(r"\{\"epoch\": .*\}")
_PARAMETERS = re.compile(r"num\. (?:shared )?model params: ([\d,]+)")
_WORLD = re.compile(r"training on (\d+) (?:devices|GPUs)")
_DONE = re.compile(rf"done training in ({NUMBER}) seconds")
_SETTING = re.compile(
    r"['\"]?\b(max_update|max_epoch|num_workers|fp16|update_freq|max_tokens|optimizer)\b['\"]?[=:] "
    r"?'?\[?([\w.]+)"
)


def sureness(line: str) -> float:
    if "wps" not in line:
        return NO
    is_ours = _INNER.search(line) or '"train_num_updates"' in line or "| num_updates " in line
    return CERTAIN if is_ours or ("num_updates" in line and _JSON.search(line)) else NO


class _Reader:
    def __init__(self, path: Path) -> None:
        self._book = Book(
            path, TOOL, "words of a batch over words per second (`wpb`, `wps`), since its last line"
        )
        self._settings: dict[str, str] = {}
        self._parameters: int | None = None
        self._world: int | None = None
        self._was_evaluated = False

    def take(self, line: str) -> None:
        if "wps" in line and (match := _INNER.search(line)):
            self._book.run.steps_per_epoch = int(match[3])
            self._progress(dict(_PAIR.findall(match[4])), line)
        elif "num_updates" in line and (match := _JSON.search(line)):
            self._of_json(match[0], line)
        elif "num_updates" in line and "| train |" not in line and _VALID.search(line):
            self._evaluated(dict(_PAIR.findall(line)), line)
        else:
            self._about(line)

    def _of_json(self, text: str, line: str) -> None:
        try:
            values = {str(k): str(v) for k, v in json.loads(text).items()}
        except ValueError:
            return
        if any(name.startswith("valid_") for name in values):
            self._evaluated({k.removeprefix("valid_"): v for k, v in values.items()}, line)
        elif not any(name.startswith("train_") for name in values if name != "train_wall"):
            self._progress(values, line)

    def _progress(self, values: dict[str, str], line: str) -> None:
        step = whole(values.get("num_updates"))
        if step is None:
            return
        words, pace = number(values.get("wpb")), number(values.get("wps"))
        # `ups` has two digits, which are too few; and its clock runs through an evaluation.
        seconds = words / pace if words and pace and not self._was_evaluated else None
        self._was_evaluated = False
        told = Progress(
            step,
            number(values.get("loss")),
            number(values.get("lr")),
            seconds,
            None,
            pace if seconds else None,
            stamp_of(line),
        )
        self._book.progress(told)

    def _evaluated(self, values: dict[str, str], line: str) -> None:
        step, self._was_evaluated = whole(values.get("num_updates")), True
        found = {"BLEU": number(values.get("bleu")), "accuracy": number(values.get("accuracy"))}
        scores = {name: value for name, value in found.items() if value is not None}
        self._book.evaluated(number(values.get("loss")), scores, step)
        self._book.at(stamp_of(line))

    def _about(self, line: str) -> None:
        run = self._book.run
        if match := _PARAMETERS.search(line):
            self._parameters = whole(match[1])
        elif match := _WORLD.search(line):
            self._world = int(match[1])
        elif match := _DONE.search(line):
            run.wall_seconds = number(match[1])
            run.wall_how, run.has_end = "'done training in' at the end of the log", True
            run.is_wall_whole = True
        elif "Namespace(" in line or "max_update" in line:
            self._settings |= dict(_SETTING.findall(line))
        else:
            self._book.look_for_failure(line)

    def finish(self) -> list[ForeignRun]:
        runs = self._book.finish()
        for run in runs:
            run.unit = "target token"
            run.num_parameters = self._parameters
            if self._world:
                run.world, run.world_how = self._world, "'training on ... devices'"
            run.config |= {k: v for k, v in self._settings.items() if v not in ("None", "False")}
            run.steps_wanted = whole(self._settings.get("max_update"))
            run.loader_workers = whole(self._settings.get("num_workers"))
        return runs


FORMAT = TextFormat(TOOL, ("wps",), sureness, _Reader)
