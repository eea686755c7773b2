"""nanoGPT and its descendants: llm.c, nanochat, modded-nanogpt and teaching scripts like them.

    iter 100: loss 2.3412, time 55.12ms, mfu 3.10%              nanoGPT
    step 250: train loss 1.9674, val loss 2.0582
    step   10/19560 | loss 6.9 (+nanz)| norm 3.4 (+nanz)| lr 2.57e-05 | 500.00 ms | ... tok/s
    step 00010/21400 (0.05%) | loss: 8.5 | dt: 500.0ms | tok/sec: 1,048,000 | mfu: 45.0
    step:10/1750 train_loss:5.4 train_time:1234ms step_avg:123.4ms

The time is that of the last step alone. nanoGPT's clock runs through an evaluation, so a step that
follows one is not timed.
"""

import re
from pathlib import Path

from paceline.report.foreign.reading.book import SAMPLE, Book, Progress
from paceline.report.foreign.reading.contract import CERTAIN, LIKELY, NO, TextFormat
from paceline.report.foreign.reading.stamps import stamp_of
from paceline.report.foreign.reading.timing import EpochMean
from paceline.report.foreign.reading.values import NUMBER, duration, number, whole
from paceline.report.foreign.run import ForeignRun

TOOL = "nanoGPT and relatives"

_STEP = re.compile(r"^\W*(?:\S+ )?(?:iter|step)\s*:?\s*(\d+)(?:/(\d+))?\b(.*)", re.IGNORECASE)
_EVALUATED = re.compile(rf"train loss:? ({NUMBER}),?\s+val loss:? ({NUMBER})")
_VALIDATION = re.compile(rf"\b(?:val(?:idation)?[ _]loss)\s*[: ]\s*({NUMBER})")
_LOSS = re.compile(
    rf"(?<!val )(?<!val_)(?<!validation )\bl?oss(?: train)?\s*:?\s*({NUMBER})|train_loss:({NUMBER})"
)
_TIME = re.compile(rf"(?:\b(?:time|dt):?\s*|[|(]\s*)({NUMBER})\s*(ms|s)\b")
_TOKENS = re.compile(rf"tok(?:ens)?/s(?:ec)?:\s*({NUMBER})|({NUMBER})\s*tok(?:ens)?/s")
_RATE = re.compile(rf"\blr:?\s*({NUMBER})")
_MFU = re.compile(rf"mfu:?\s*({NUMBER})|({NUMBER})%[\w ]* MFU")
_AVERAGE = re.compile(rf"train_time:({NUMBER})(ms|s) step_avg:({NUMBER})ms")
_PER_STEP = re.compile(r"tokens per iteration will be: ([\d,]+)")
_PARAMETERS = re.compile(r"number of parameters: ([\d.]+)M")
_HINTS = ("iter ", "step ", "step:", "iter_dt", "Step ", "tokens per iteration", "val_loss:")


def sureness(line: str) -> float:
    match = _STEP.match(line)
    if match is None:
        return NO
    rest = match[3]
    if _EVALUATED.search(rest) or _AVERAGE.search(rest):
        return CERTAIN
    if not _LOSS.search(rest):
        return NO
    if _MFU.search(rest) and _TIME.search(rest):
        return CERTAIN
    return LIKELY if _TIME.search(rest) else NO


class _Reader:
    def __init__(self, path: Path) -> None:
        self._book = Book(path, TOOL, "the time that it prints for its last step", SAMPLE)
        self._book.run.unit = "token"
        self._evaluated_at: int | None = None
        self._tokens_per_step: int | None = None
        self._mfu: float | None = None
        self._parameters: int | None = None

    def take(self, line: str) -> None:
        if ("step" in line or "iter" in line or "Step" in line) and (match := _STEP.match(line)):
            self._step(int(match[1]), whole(match[2]), match[3], line)
        elif match := _PER_STEP.search(line):
            self._tokens_per_step = whole(match[1])
        elif match := _PARAMETERS.search(line):
            self._parameters = round(float(match[1]) * 1e6)
        elif "loss" in line and (match := _VALIDATION.search(line)):
            self._book.evaluated(number(match[1]))
        else:
            self._book.look_for_failure(line)

    def _step(self, step: int, wanted: int | None, rest: str, line: str) -> None:
        book = self._book
        if match := _EVALUATED.search(rest):
            if book.run.step and step < book.run.step:
                book.begin_run()
            book.evaluated(number(match[2]), step=step)
            self._evaluated_at = step
            return
        if match := _AVERAGE.search(rest):
            total = (number(match[1]) or 0.0) / (1000 if match[2] == "ms" else 1)
            self._averaged(total, (number(match[3]) or 0.0) / 1000)
        if match := _VALIDATION.search(rest):
            book.evaluated(number(match[1]), step=step)
        elif (match := _LOSS.search(rest)) and ("train loss" not in rest or _TIME.search(rest)):
            book.progress(self._told(step, number(match[1] or match[2]), rest, line))
        book.run.steps_wanted = wanted or book.run.steps_wanted

    def _averaged(self, total: float, mean: float) -> None:
        """A clock that leaves out the first steps and evaluations, and the mean of all others."""
        run, pace = self._book.run, self._book.pace
        if 0 < mean < 1e6 and 0 <= total < 1e12:
            pace.epochs = {0: EpochMean(max(1, round(total / mean)), mean, None)}
            run.step_times.how = "the mean that it prints for all steps but the first ones"

    def _told(self, step: int, loss: float | None, rest: str, line: str) -> Progress:
        time, tokens, rate = _TIME.search(rest), _TOKENS.search(rest), _RATE.search(rest)
        seconds = duration(f"{time[1]}{time[2]}".replace(",", "")) if time else None
        if step in (self._evaluated_at, 0):
            seconds = None
        if mfu := _MFU.search(rest):
            share = number(mfu[1] or mfu[2])
            self._mfu = share if share is not None and share > 0 else self._mfu
        return Progress(
            step,
            loss,
            number(rate[1]) if rate else None,
            seconds,
            None,
            number(tokens[1] or tokens[2]) if tokens else None,
            stamp_of(line),
        )

    def finish(self) -> list[ForeignRun]:
        runs = self._book.finish()
        for run in runs:
            self._complete(run)
        return runs

    def _complete(self, run: ForeignRun) -> None:
        run.unit = "token"
        run.num_parameters = self._parameters
        mean = run.step_times.mean_seconds
        if run.units_per_second is None and self._tokens_per_step and mean:
            run.units_per_second = self._tokens_per_step / mean
        if self._mfu is not None:
            run.notes.append(f"its own figure of model FLOPs utilisation (MFU): {self._mfu:g} %")


FORMAT = TextFormat(TOOL, _HINTS, sureness, _Reader)
