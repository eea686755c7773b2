"""Phases of a training loop by boundaries and elimination: what was between two things that were
seen counts for one phase, and what no rule explains is unexplained.

Boundaries are a batch asked for and got, backward, an optimizer's step, a save, a collective that
the script calls, `model.eval()` and `model.train()`. Whether a batch was for training is known only
when backward follows; until then its time is pending. Everything here is called in each step: it is
plain arithmetic on attributes, what a step usually does comes first and calls nothing else, and
what it costs is in `benchmarks/observe`.
"""

from time import perf_counter

INPUT = "input"
COMPUTE = "compute"
NETWORK = "network"
OPTIMIZER = "optimizer"
EVALUATE = "evaluate"
CHECKPOINT = "checkpoint"
SHUT_DOWN = "shut-down"
UNEXPLAINED = "unexplained"
PHASES = (
    INPUT,
    COMPUTE,
    NETWORK,
    OPTIMIZER,
    EVALUATE,
    CHECKPOINT,
    SHUT_DOWN,
    UNEXPLAINED,
)
"""Names of `paceline/record/schema.py`, whose start-up is what comes before the loop."""

# Where the loop is; named after the boundary that was passed last.
_OUTSIDE = "outside"
_ASKED = "asked"
_GOT = "got"
_IN_BACKWARD = "in backward"
_AFTER_BACKWARD = "after backward"
_IN_STEP = "in step"
_AFTER_STEP = "after step"
_ASIDE = "aside"

_USUALLY = {
    _OUTSIDE: UNEXPLAINED,
    _IN_BACKWARD: COMPUTE,
    _AFTER_BACKWARD: UNEXPLAINED,
    _IN_STEP: OPTIMIZER,
    _AFTER_STEP: UNEXPLAINED,
}
"""Where the time since a boundary goes if the next one does not say otherwise."""


class Iteration:
    """One pass over a loader; kept by whoever watches the loader."""

    __slots__ = ("num_backwards", "wait", "work")

    def __init__(self, wait: float, work: float, num_backwards: int) -> None:
        self.wait, self.work, self.num_backwards = wait, work, num_backwards


class Boundaries:
    """The time of one thread, from the start of the loop on."""

    def __init__(self, now: float | None = None) -> None:
        self.since = perf_counter() if now is None else now
        self.place = _OUTSIDE
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self.is_evaluating = False
        self.is_in_backward = False
        self.num_backwards = 0
        self.aside_seconds = 0.0
        """Evaluations and saves since the last step, which are no part of a step."""
        self.loop_started: float | None = None
        """When the batch was asked for that the first backward was about."""
        self._sign: float | None = None
        self._wait = self._work = 0.0
        """Of batches that no backward has followed yet."""
        self._evaluation_wait = self._evaluation_work = 0.0
        self._evaluated = 0.0
        """Of that, up to the last batch; what follows may already be the end of the script."""
        self._around: list[tuple[str, float]] = []
        """Where the loop was when something that is told apart began, from the outermost on, and
        what the one around it had taken until then."""
        self._aside = 0.0
        """Of the innermost, until something inside of it was told apart as well."""
        self._step_depth = 0

    # ---- batches

    def ask(self, is_training: bool, grad_enabled: bool) -> None:
        """A batch is asked for; `is_training`: of a loader whose batches backward has followed."""
        now = perf_counter()
        if self.place is _AFTER_STEP and is_training and grad_enabled and not self.is_evaluating:
            self.seconds[UNEXPLAINED] += now - self.since
            self.since = now
            self.place = _ASKED
            return
        if self.is_evaluating:
            if is_training and grad_enabled:
                self._end_evaluation(now)
        elif not grad_enabled:
            self._begin_evaluation(now)
        self._book(now)
        if not self.num_backwards and not self.is_evaluating and not self._wait + self._work:
            self._begin_loop(now)
        self.place = _ASKED

    def got(self) -> None:
        now = perf_counter()
        if self.place is _ASKED and not self.is_evaluating:
            self._wait += now - self.since
            self.since = now
        else:
            self._book(now)
        self.place = _GOT

    def begin_pass(self) -> None:
        """A loader is begun anew; before the first backward, what came before was start-up."""
        if not self.num_backwards and not self.is_evaluating:
            self._wait = self._work = 0.0
            self._begin_loop(perf_counter())

    def begin_iteration(self) -> Iteration:
        return Iteration(self._wait, self._work, self.num_backwards)

    def end_iteration(self, iteration: Iteration) -> None:
        """No batch is left. A pass that no backward was in was an evaluation."""
        self._book(perf_counter())
        self.place = _AFTER_STEP
        if self.is_evaluating:
            self.evaluated()
        elif iteration.num_backwards != self.num_backwards:  # the wait for "no more" was input too
            self.seconds[INPUT] += self._wait
            self._wait = 0.0
        else:
            passed = self._wait - iteration.wait + self._work - iteration.work
            self._wait, self._work = iteration.wait, iteration.work
            self._book_evaluation(passed)

    # ---- backward and steps

    def begin_backward(self) -> None:
        """What came before, back to the last boundary, is compute as well: no clock is needed."""
        if self.num_backwards and not self.is_evaluating:
            seconds = self.seconds
            seconds[INPUT] += self._wait
            self._wait = 0.0
            if self._work:
                seconds[COMPUTE] += self._work
                self._work = 0.0
            self.num_backwards += 1
            self.place = _IN_BACKWARD
            self.is_in_backward = True
        else:
            self._begin_unusual_backward(perf_counter())

    def _begin_unusual_backward(self, now: float) -> None:
        """The first of all, or while the loop was taken to evaluate."""
        if self.loop_started is None:
            self._begin_loop(self.since if self._sign is None else self._sign)
        if self.is_evaluating:
            self._book(now)
        else:  # where no batch was asked for, the forward pass began at the boundary before
            self.seconds[COMPUTE] += now - self.since
            self.since = now
        seconds = self.seconds
        seconds[INPUT] += self._wait + self._evaluation_wait
        seconds[COMPUTE] += self._work + self._evaluation_work
        self._wait = self._work = self._evaluation_wait = self._evaluation_work = 0.0
        self.is_evaluating = False
        self.num_backwards += 1
        self.place = _IN_BACKWARD
        self.is_in_backward = True

    def end_backward(self) -> None:
        now = perf_counter()
        self.seconds[COMPUTE] += now - self.since
        self.since = now
        self.is_in_backward = False
        self.place = _IN_STEP if self._step_depth else _AFTER_BACKWARD

    def begin_step(self) -> None:
        """What came before, back to backward or another optimizer's step, is the optimizer's as
        well, such as clipping and unscaling: no clock is needed."""
        if self._step_depth:
            self._step_depth += 1
            return
        self._step_depth = 1
        place = self.place
        if self.is_evaluating or (place is not _AFTER_BACKWARD and place is not _AFTER_STEP):
            self._book(perf_counter())
        self.place = _IN_STEP

    def end_step(self) -> bool:
        """Whether the outermost optimizer is done, where one calls another."""
        if self._step_depth > 1:
            self._step_depth -= 1
            return False
        self._step_depth = 0
        now = perf_counter()
        if self.place is _IN_STEP and not self.is_evaluating:
            self.seconds[OPTIMIZER] += now - self.since
            self.since = now
        else:
            self._book(now)
        self.place = _AFTER_STEP
        return True

    # ---- what the loop does beside

    def enter(self) -> None:
        """Something that is told apart begins: a save, a collective, making a loader's iterator."""
        self._book(perf_counter())
        self._evaluated = self._evaluation_wait + self._evaluation_work
        self._around.append((self.place, self._aside))
        self.place, self._aside = _ASIDE, 0.0

    def leave(self, phase: str) -> float:
        now = perf_counter()
        passed = now - self.since + self._aside
        self.since = now
        self._go_back()
        if self.is_evaluating and phase != CHECKPOINT:
            self._evaluation_work += passed
        elif phase == INPUT:
            self._wait += passed
        else:
            self.seconds[phase] += passed
            if phase == CHECKPOINT:
                self.aside_seconds += passed
        return passed

    def leave_as(self, phase: str | None) -> None:
        """None: what it was in the middle of took that time."""
        if phase is not None:
            self.leave(phase)
        else:
            self.since -= self._aside
            self._go_back()

    def _go_back(self) -> None:
        self.place, self._aside = self._around.pop() if self._around else (_AFTER_STEP, 0.0)

    @property
    def is_stepping(self) -> bool:
        return self._step_depth > 0

    def evaluated(self) -> None:
        """A sign that an evaluation got as far as this: no batch is left, a score, a save."""
        if self.is_evaluating:
            self._book(perf_counter())
            self._evaluated = self._evaluation_wait + self._evaluation_work

    def eval_mode(self) -> None:
        if not self.is_evaluating and self.num_backwards:
            self._begin_evaluation(perf_counter())

    def train_mode(self) -> None:
        if self.is_evaluating:
            self._end_evaluation(perf_counter())
        self.sign()

    def sign(self) -> None:
        """Something that scripts do right before their loop; where no loader tells, it begins."""
        if not self.num_backwards:
            self._sign = perf_counter()

    # ---- taking stock

    def take(self) -> dict[str, float]:
        """Seconds by phase since the last time, and since then they add up to what passed."""
        taken = {name: seconds for name, seconds in self.seconds.items() if seconds}
        self.seconds = dict.fromkeys(PHASES, 0.0)
        return taken

    def finish(self) -> dict[str, float]:
        now = perf_counter()
        if self.is_evaluating:
            self._finish_evaluation(now)
        else:
            usual = _USUALLY.get(self.place, UNEXPLAINED)
            last = SHUT_DOWN if usual == UNEXPLAINED else usual
            self.seconds[last] += now - self.since
            self.since = now
        unknown = self._wait + self._work + self._aside + sum(own for _, own in self._around)
        self.seconds[UNEXPLAINED] += unknown
        self._wait = self._work = self._aside = 0.0
        self._around.clear()
        return self.take()

    def _finish_evaluation(self, now: float) -> None:
        self._book(now)
        passed = self._evaluation_wait + self._evaluation_work
        known = self._evaluated or passed
        self.seconds[EVALUATE] += known
        self.seconds[SHUT_DOWN] += passed - known

    # ---- booking

    def _book(self, now: float) -> None:
        passed = now - self.since
        self.since = now
        place = self.place
        if place == _ASIDE:
            self._aside += passed
        elif self.is_evaluating:
            if place == _ASKED:
                self._evaluation_wait += passed
            else:
                self._evaluation_work += passed
        elif place == _ASKED:
            self._wait += passed
        elif place == _GOT:
            self._work += passed
        else:
            self.seconds[_USUALLY.get(place, UNEXPLAINED)] += passed

    def _begin_loop(self, began: float) -> None:
        self.loop_started = began
        self.since = began
        self.seconds = dict.fromkeys(PHASES, 0.0)
        self.aside_seconds = 0.0

    def _begin_evaluation(self, now: float) -> None:
        self._book(now)
        self.is_evaluating = True
        self._evaluated = 0.0
        self.place = _OUTSIDE

    def _end_evaluation(self, now: float) -> None:
        self._book(now)
        passed = self._evaluation_wait + self._evaluation_work
        self._evaluation_wait = self._evaluation_work = 0.0
        self.is_evaluating = False
        self.place = _AFTER_STEP
        self._book_evaluation(passed)

    def _book_evaluation(self, passed: float) -> None:
        self.seconds[EVALUATE] += passed
        self.aside_seconds += passed
