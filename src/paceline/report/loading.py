"""Where a loader sets the pace in both runs: more loading made one faster, not more machines."""

from paceline.record.schema import INPUT
from paceline.report.facts.facts import Facts
from paceline.report.facts.verdict import LEAST_SHARE
from paceline.report.speed import Speed, ratio_of
from paceline.units import count_of, format_number, percent, plural

_LEAST_GAIN = 1.05


def input_share(facts: Facts) -> float | None:
    return facts.verdict.shares.get(INPUT)


def loader_workers(facts: Facts) -> int | None:
    """Of one process, as recorded or as the log prints it."""
    if facts.loader_workers is not None:
        return facts.loader_workers
    for name in ("workers", "num_workers", "dataloader_num_workers"):
        value = str(facts.printed.get(name, ""))
        if value.isdecimal():
            return int(value)
    return None


def is_paced_by_loaders(runs: tuple[Facts, Facts]) -> bool:
    return all((input_share(facts) or 0.0) >= LEAST_SHARE for facts in runs)


def loading_sentence(runs: tuple[Facts, Facts], speeds: tuple[Speed, Speed]) -> str:
    """Nothing where something else than a loader sets the pace, or neither is faster."""
    ratio = ratio_of(*speeds)
    if not is_paced_by_loaders(runs) or not (ratio > _LEAST_GAIN or ratio < 1 / _LEAST_GAIN):
        return ""
    shares = [percent(input_share(facts) or 0.0) for facts in runs]
    waits = f"A loader sets the pace in both (waiting for input is {shares[0]} and {shares[1]})"
    faster, slower = (1, 0) if ratio > 1 else (0, 1)
    workers = [_all_workers(facts) for facts in runs]
    if None in workers:
        return (
            f"{waits}: what made {speeds[faster].run} faster is faster loading, not more devices; "
            f"how many loader workers each had is not known."
        )
    many, few = workers[faster] or 0, workers[slower] or 0
    had = f"{count_of(many, 'loader worker')} instead of {few:,}"
    if many <= few:
        return (
            f"{waits}, and {speeds[faster].run} had {had}: its loaders are faster each (a disk, a "
            "cache, cores, or smaller samples)."
        )
    each = _each(speeds, (workers[0] or 1, workers[1] or 1))
    return (
        f"{waits}, so more loader workers and not another machine made {speeds[faster].run} "
        f"faster: it had {had}{each}. One machine with {count_of(many, 'worker')} would do as "
        "much, if it has the cores and the disk for them."
    )


def _all_workers(facts: Facts) -> int | None:
    """Of all processes; a loader without workers works in the process itself."""
    each = loader_workers(facts)
    return None if each is None else max(each, 1) * (facts.world.size or 1)


def _each(speeds: tuple[Speed, Speed], workers: tuple[int, int]) -> str:
    base, now = (
        format_number(speed.units_per_second / count)
        for speed, count in zip(speeds, workers, strict=True)
    )
    unit = plural(speeds[0].unit)
    return f" ({base} and {now} {unit} a second for each)" if unit != "epochs" else ""
