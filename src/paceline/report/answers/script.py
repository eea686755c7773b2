"""Answers and remedies about a script that was observed, in the script's own terms."""

from typing import Any

from paceline.record.schema import CHECKPOINT, COMPUTE, INPUT, NETWORK
from paceline.report.answers.answer import QUESTIONS, Answer
from paceline.report.answers.words import listed
from paceline.report.facts.arithmetic import AUTOCAST, lighter_precision
from paceline.report.facts.busyness import utilisation
from paceline.report.facts.facts import Facts
from paceline.report.facts.verdict import STRAGGLER
from paceline.units import count_of, format_bytes, format_count, format_seconds, percent

LOG_VALIDATION = (
    "log what validation gives, under a name with `val` or `eval` in it: to a SummaryWriter, W&B, "
    "trackio, MLflow or the framework's own log"
)
_MUCH_OTHER_LOAD = 0.3


def loader_of(facts: Facts) -> dict[str, Any]:
    found = facts.begin.get("loader")
    return found if isinstance(found, dict) else {}


def remedy_of_script(facts: Facts) -> str:
    offered = {
        INPUT: _faster_input,
        NETWORK: _less_traffic,
        CHECKPOINT: _fewer_saves,
        STRAGGLER: _find_the_cause,
        COMPUTE: _faster_compute,
    }
    offer = offered.get(facts.verdict.word)
    return offer(facts) if offer else ""


def _faster_input(facts: Facts) -> str:
    loader = loader_of(facts)
    workers = int(loader.get("workers") or 0)
    more = max(2 * workers, 2)
    if not workers:
        return (
            "the DataLoader loads in the training process itself: "
            f"DataLoader(..., num_workers={more}, persistent_workers=True)"
        )
    keep = "" if loader.get("persistent") else ", persistent_workers=True"
    return f"more worker processes: DataLoader(..., num_workers={more}{keep}); it has {workers} now"


def _less_traffic(facts: Facts) -> str:
    """The same bytes move per step whatever its batch."""
    size = loader_of(facts).get("batch_size")
    larger = f"batch_size={2 * size}" if isinstance(size, int) else "a larger batch"
    return (
        f"exchange gradients less often: {larger} for each process, or accumulate steps under "
        "`ddp.no_sync()`; send half the bytes with a 16-bit communication hook "
        "(`ddp.register_comm_hook`); measure the links: paceline hosts check"
    )


def _fewer_saves(facts: Facts) -> str:
    return "save less often, or with torch.distributed.checkpoint.async_save, which writes beside"


def _find_the_cause(facts: Facts) -> str:
    if facts.world.num_hosts == 1:
        return f"see what else runs on the host while it trains: paceline watch {facts.run}"
    return "compare the hosts and leave out or repair the slow one: paceline hosts check"


def other_load(facts: Facts) -> float:
    """The share of the cores that other programs used, if it is large."""
    busy, own = utilisation(facts), facts.world.own_cpu_share
    share = busy[0] - own if own is not None and busy[1] == "cores" else 0.0
    return share if share > _MUCH_OTHER_LOAD else 0.0


def _faster_compute(facts: Facts) -> str:
    others = other_load(facts)
    if others:
        return (
            f"other programs used {percent(others)} of the cores: stop them, or train on a "
            "machine of its own"
        )
    lighter = lighter_precision(facts)
    if lighter is not None:
        return f"lower precision: {AUTOCAST[lighter]} around the forward pass"
    return "more processes or machines: paceline run --procs, or --hosts hosts.yaml"


def data_of_script(facts: Facts) -> Answer:
    """As far as its DataLoader tells."""
    loader, known = loader_of(facts), facts.data
    if not loader:
        return Answer(
            "data",
            QUESTIONS["data"],
            "Not known: the script reads its data without torch's DataLoader.",
            missing="a torch.utils.data.DataLoader, whose batches can be counted",
        )
    figures: dict[str, Any] = {"loader": loader, "epochs": known.epochs}
    kind = loader.get("dataset")
    sentences = [f"A data set of the class {kind}" if kind else "A data set"]
    size, per_pass = loader.get("batch_size"), known.steps_per_epoch
    if per_pass:
        figures["steps_per_epoch"] = per_pass
        each = "" if (facts.world.size or 1) == 1 else " for each process"
        sentences[0] += f", {count_of(per_pass, 'batch')}{each} in an epoch"
    if isinstance(size, int):
        sentences[0] += f", {count_of(size, 'sample')} in a batch"
    if per_pass and isinstance(size, int):
        samples = figures["num_samples"] = per_pass * size * (facts.world.size or 1)
        sentences[0] += f": about {format_count(samples)} samples"
    sentences[0] += "."
    if known.epochs:
        sentences.append(f"The script went through it {known.epochs:.1f} times.")
    return Answer(
        "data",
        QUESTIONS["data"],
        " ".join(sentences),
        figures,
        "what the DataLoader gave, batch by batch",
        "its bytes: they are read in places that a DataLoader does not tell",
    )


def checkpoint_of_script(facts: Facts) -> Answer:
    files, cost = facts.saving.files, facts.saving.cost
    how = "a clock around torch.save, safetensors and torch.distributed.checkpoint"
    if files is None:
        return Answer(
            "checkpoint",
            QUESTIONS["checkpoint"],
            "Nothing was saved while steps were done.",
            {"num_saves": 0},
            how,
            "a save: a crash loses everything",
        )
    several = f" in {files.num_files} files" if files.num_files > 1 else ""
    share = cost.stall_seconds / facts.wall_seconds if facts.wall_seconds else 0.0
    each = cost.stall_seconds / max(cost.num_saves, 1)
    sentence = (
        f"{count_of(cost.num_saves, 'save')}; the last, at step {files.step:,}, is "
        f"{format_bytes(files.num_bytes)}{several} in {files.path}. The loop stood still for "
        f"{format_seconds(cost.stall_seconds)} in all ({percent(share)} of the wall time), "
        f"{format_seconds(each)} for each."
    )
    figures = {
        "num_saves": cost.num_saves,
        "num_failed": cost.num_failed,
        "total_bytes": files.num_bytes,
        "num_files": files.num_files,
        "path": str(files.path),
        "step": files.step,
        "stall_seconds": cost.stall_seconds,
        "share": share,
    }
    missing = "what is in it: the script's own form is not opened"
    return Answer("checkpoint", QUESTIONS["checkpoint"], sentence, figures, how, missing)


def unmeasured_of_script(facts: Facts) -> str:
    """For the answer about the network: what happened there without being timed."""
    found = [w.partition(": ")[2] for w in facts.warnings if w.startswith("not measured")]
    if not found:
        return ""
    whose = "FSDP's" if facts.begin.get("parallel") == "fsdp" else "some"
    return (
        f" Beware: {whose} collectives were counted, but not timed ({listed(found[:3])}); what "
        "they took counts as compute."
    )
