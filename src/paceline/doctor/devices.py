"""Judgements about each host's GPUs: does a kernel run on each, is this torch built for them, and
does the recipe fit their memory.

Pure functions from what the trial on a host found to rows of the table.
"""

from collections.abc import Iterable, Mapping, Sequence

from paceline.doctor.rows import Facts, Row, all_of
from paceline.machine.arithmetic import Capability, best_precision, shown
from paceline.machine.torch_builds import remedy_for, without_kernels
from paceline.tasks.memory import Memory
from paceline.units import count_of, format_bytes

_INSTALL = "install a torch that is built for CUDA there: paceline hosts push"
_DRIVER = "update NVIDIA's driver there, or let `paceline hosts push` install a torch that fits it"
_COMFORTABLE = 0.9
"""Of a device's memory: the allocator's gaps, and the estimate's error."""


def judge_kernels(found: Mapping[str, Facts]) -> list[Row]:
    """Of hosts where torch was tried and that have GPUs."""
    rows: list[Row] = []
    for name, facts in found.items():
        tried = facts.get("torch_import") or {}
        if "error" not in tried and "devices" in tried and (facts["gpus"] or tried["devices"]):
            rows += _of_host(name, facts, tried)
    return rows


def smallest_device(found: Mapping[str, Facts]) -> float | None:
    """Bytes of it, among all that torch found."""
    tried = [facts.get("torch_import") or {} for facts in found.values()]
    sizes = [float(device["memory_bytes"]) for each in tried for device in each.get("devices", [])]
    return min(sizes, default=None)


def judge_driver(found: Mapping[str, Facts]) -> list[Row]:
    """A card on the bus that no driver answers for: torch would train on the processor."""
    return [
        Row(
            name,
            "driver",
            "fail",
            f"{count_of(facts['num_cards'], 'card')} of NVIDIA, and no driver answers",
            "paceline hosts setup (step driver) says how to install it",
        )
        for name, facts in found.items()
        if facts.get("num_cards") and not facts["gpus"] and "container" not in facts
    ]


def judge_memory(found: Mapping[str, Facts], memory: Memory, asked_precision: str) -> list[Row]:
    """Whether what a recipe is estimated to take fits every device, in the precision it gets."""
    rows: list[Row] = []
    for name, facts in found.items():
        tried = facts.get("torch_import") or {}
        rows += [_fit(name, device, memory, asked_precision) for device in tried.get("devices", [])]
    return list(dict.fromkeys(rows))


def _fit(name: str, device: Facts, memory: Memory, asked_precision: str) -> Row:
    auto = asked_precision == "auto"
    precision = best_precision(capability_of(device)) if auto else asked_precision
    needed, there = memory.total(precision), float(device["memory_bytes"])
    found = (
        f"about {format_bytes(needed)} of the {format_bytes(there)} of {device['name']} "
        f"(estimated, in {precision}, with micro-batches of {memory.micro})"
    )
    if needed <= _COMFORTABLE * there:
        return Row(name, "memory", "ok", found)
    fitting = memory.micro_that_fits(_COMFORTABLE * there, precision)
    remedy = f"batch.micro={fitting}" if fitting else "take a smaller model, or a larger device"
    return Row(name, "memory", "warn" if needed <= there else "fail", found, remedy)


def _of_host(name: str, facts: Facts, tried: Facts) -> Iterable[Row]:
    devices: Sequence[Facts] = tried["devices"]
    if not devices:
        return [_no_device(name, facts, tried)]
    wrong = [row for device in devices if (row := _wrong(name, device, tried))]
    return wrong or [Row(all_of([name]), "kernels", "ok", _shown(devices, facts, tried))]


def _no_device(name: str, facts: Facts, tried: Facts) -> Row:
    listed = f"nvidia-smi lists {len(facts['gpus'])}, and torch finds no device"
    if not tried.get("cuda"):
        shown_torch = f"{listed}: torch {tried['version']} is built without CUDA"
        return Row(name, "kernels", "fail", shown_torch, _INSTALL)
    why = f": {tried['cuda_error']}" if tried.get("cuda_error") else ""
    return Row(name, "kernels", "fail", f"{listed}{why}", _DRIVER)


def _wrong(name: str, device: Facts, tried: Facts) -> Row | None:
    capability = capability_of(device)
    lacking = without_kernels(str(device["name"]), capability, tried["built_for"])
    if lacking:
        return Row(name, "kernels", "fail", lacking, remedy_for(capability))
    if device.get("error"):
        shown_error = f"no kernel runs on {device['name']}: {device['error']}"
        return Row(name, "kernels", "fail", shown_error, f"see `nvidia-smi` there; {_DRIVER}")
    return None


def _shown(devices: Sequence[Facts], facts: Facts, tried: Facts) -> str:
    kinds = [
        f"{device['name']} (compute capability {shown(capability_of(device))}, "
        f"{format_bytes(device['memory_bytes'])})"
        for device in devices
    ]
    each = ", ".join(f"{kinds.count(kind)} x {kind}" for kind in dict.fromkeys(kinds))
    driver = f", driver {facts['driver']}" if facts.get("driver") else ""
    return (
        f"a kernel ran on {each}{driver}; torch {tried['version']} is built with CUDA "
        f"{tried['cuda']} for {', '.join(tried['built_for'])}"
    )


def capability_of(device: Facts) -> Capability:
    major, minor = device["capability"]
    return int(major), int(minor)
