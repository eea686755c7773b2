"""What of the load of the machines was the run's own, from the CPU time of its processes.

A probe counts what the cores do for everybody. Hosts that are namespaces of one machine do not see
each other's processes, so what belongs to the run is added up from all ranks on that machine.
"""

from typing import Any

from paceline.record.columns import RankRecord


def own_cpu_share(records: list[RankRecord], environment: dict[str, Any]) -> float | None:
    """Of the time of all cores that the run could use, while it stepped."""
    first, num_cores = records[0], _num_cores(records, environment)
    seconds = first.steps.total("seconds")
    spent = sum(cpu_seconds_in_steps(record, first) for record in records)
    return spent / (seconds * num_cores) if num_cores and seconds and spent else None


def _num_cores(records: list[RankRecord], environment: dict[str, Any]) -> int | None:
    """Different ones, over all machines."""
    cores = {
        (record.facts["machine"], int(number))
        for record in records
        if record.facts.get("machine") and "cores" in record.facts
        for number in record.facts["cores"]
    }
    if cores and all(record.facts.get("machine") for record in records):
        return len(cores)
    # Runs of 0.1.0 do not tell which hosts share a machine; one host shares it with none.
    num_hosts = records[0].facts.get("num_hosts") or 1
    known = environment.get("num_machine_cores") or environment.get("num_cores")
    return int(known) if known and num_hosts == 1 else None


def cpu_seconds_in_steps(record: RankRecord, first: RankRecord) -> float:
    """Of a rank that was read in part, in proportion."""
    in_steps, num_read = record.steps.total("cpu_seconds"), record.steps.total("num_steps")
    if record.share_read < 1 and num_read:
        in_steps *= first.steps.total("num_steps") / num_read
    return in_steps
