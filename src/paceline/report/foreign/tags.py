"""What a scalar is, judged by its name: every tool has names of its own."""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

Kind = Literal[
    "loss",
    "score",
    "rate",
    "step seconds",
    "input seconds",
    "steps per second",
    "input share",
    "wall seconds",
]

_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_VALIDATION = {"val", "valid", "validation", "eval", "evaluation", "test", "testing", "dev"}
_TRAINING = {"train", "training"}
_SCORES = {
    "bleu": "BLEU",
    "chrf": "chrF",
    "accuracy": "accuracy",
    "acc": "accuracy",
    "top": "top-",
    "prec": "top-",
    "f": "F",
    "map": "mAP",
    "ap": "AP",
    "miou": "mIoU",
    "rouge": "ROUGE",
    "auc": "AUC",
    "wer": "WER",
    "cer": "CER",
    "ter": "TER",
    "perplexity": "perplexity",
    "ppl": "perplexity",
    "rmse": "RMSE",
    "mae": "MAE",
    "fid": "FID",
    "eer": "EER",
}
_ORDER = ("BLEU", "chrF", "top-1", "accuracy", "WER", "CER")
_WRITTEN_AS_ONE = (("mAP", "map"), ("mIoU", "miou"), ("chrF", "chrf"))
_PARTS_OF_SIZE = {"s", "m", "l", "small", "medium", "large"}
"""'bbox_mAP_s' is of small objects alone."""
_STRAY = {"scale", "grad", "gradient", "norm", "weight", "ratio", "lowest", "best"}
"""Words that make 'loss' something else: 'loss_scale', 'best loss so far'."""


@dataclass(frozen=True)
class Meaning:
    kind: Kind
    is_validation: bool
    name: str = ""
    """Of a score: the measure."""


def meaning_of(tag: str) -> Meaning | None:
    plain = tag
    for written, word in _WRITTEN_AS_ONE:
        plain = plain.replace(written, f" {word} ")
    words = [word.lower() for word in _WORD.findall(plain)]
    is_validation = any(word in _VALIDATION for word in words)
    bare = [word for word in words if word not in _VALIDATION | _TRAINING]
    if kind := _timing_kind(tag.lower(), bare):
        return Meaning(kind, is_validation)
    if not bare or set(bare) & _STRAY:
        return None
    if "lr" in bare or ("learning" in bare and "rate" in bare):
        return Meaning("rate", is_validation)
    if set(bare) & {"loss", "xent", "nll"} or bare[-2:] == ["cross", "entropy"]:
        return Meaning("loss", is_validation)
    if name := _score_name(bare):
        return Meaning("score", is_validation, name)
    return None


def _timing_kind(tag: str, words: list[str]) -> Kind | None:
    if tag == "phase/input":
        return "input share"
    joined = " ".join(words)
    if joined == "runtime":
        return "wall seconds"
    if joined.endswith(("data time", "time data", "input time", "loading time")):
        return "input seconds"
    if joined.endswith(("global step sec", "steps per second", "steps per sec", "it per sec")):
        return "steps per second"
    if joined in ("time", "perf time") or joined.endswith(
        ("step time", "batch time", "iteration time", "iter time", "sec per step", "step seconds")
    ):
        return "step seconds"
    return None


def _score_name(words: list[str]) -> str | None:
    for place, word in enumerate(words):
        if word in _SCORES:
            number = next((w for w in words[place + 1 :] if w.isdecimal() and len(w) == 1), "")
            name = _SCORES[word]
            if word == "f" and not number:
                continue
            if name in ("mAP", "AP"):
                return _precision_name(name, words[place + 1 :])
            if number and name in ("top-", "accuracy"):
                return f"top-{number}"
            return "accuracy" if name == "top-" else name + number * (name == "F")
    return None


def _precision_name(name: str, rest: list[str]) -> str | None:
    """'AP50' and 'mAP_75' are at one threshold, which is another measure."""
    if set(rest) & _PARTS_OF_SIZE or "copypaste" in rest:
        return None
    return name + next((word for word in rest if word.isdecimal() and len(word) == 2), "")


def by_importance(names: Iterable[str]) -> list[str]:
    """The measure that people quote comes first."""
    return sorted(names, key=lambda n: (_ORDER.index(n) if n in _ORDER else len(_ORDER), n))
