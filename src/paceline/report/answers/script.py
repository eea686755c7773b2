"""Answers and remedies about a script that was observed, in the script's own terms."""

from typing import Any

from paceline.report.answers.answer import QUESTIONS, Answer
from paceline.report.answers.words import listed
from paceline.report.facts.facts import Facts
from paceline.report.own.observed import loader_facts
from paceline.units import count_of, format_bytes, format_count, format_seconds, percent

LOG_VALIDATION = (
    "log what validation gives, under a name with `val` or `eval` in it: to a SummaryWriter, W&B, "
    "trackio, MLflow or the framework's own log"
)


def data_of_script(facts: Facts) -> Answer:
    """As far as its DataLoader tells."""
    loader, known = loader_facts(facts.begin), facts.data
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
