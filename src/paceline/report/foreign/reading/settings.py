"""Settings by the names that most programs give them, in printed arguments, YAML and code."""

import math
import re
from typing import Any

from paceline.report.foreign.reading.values import number

_NAMES = {
    "workers": r"(?:dataloader_?)?num_?workers|workers(?:_per_gpu)?|n_?workers",
    "batch_size": r"(?:per_?(?:device|gpu)_?)?(?:train_?)?batch_?size(?:_?per_?(?:gpu|device))?"
    r"|samples_per_gpu|micro_?batch_?size|mini_?batch",
    "global_batch_size": r"global_?(?:train_?)?batch_?size|total_?batch_?size",
    "epochs": r"(?:num_?(?:train_?)?|max_?|n_?)?epochs?",
    "max_steps": r"max_?(?:steps|iters|updates?)|train_?(?:steps|iters)|total_?steps",
    "lr": r"(?:base_?|max_?)?(?:lr|learning_?rate)",
    "accumulate": r"grad(?:ient)?_?accum(?:ulation)?(?:_?steps)?|accumulate_?grad_?batches",
    "precision": r"(?:mixed_?)?precision",
    "fp16": r"fp16",
    "bf16": r"bf16",
    "optimizer": r"optim(?:izer)?(?:_?name)?",
    "seed": r"seed",
    "arch": r"arch|model_?name(?:_?or_?path)?",
}
_VALUE = r"""(?:"([^"]{1,80})"|'([^']{1,80})'|([\w.+/-]{1,80}))"""
_SETTING = re.compile(
    r"(?<![\w.-])(?:--?)?[\"']?(?:"
    + "|".join(f"(?P<{key}>{names})" for key, names in _NAMES.items()).replace("_?", "[_-]?")
    + r")[\"']?(?:\s*(?:: *(?:int|float|str|bool) *)?[=:]\s*|(?P<option> +))"
    + _VALUE,
    re.IGNORECASE,
)
_PRECISIONS = re.compile(
    r"(?:bf16|fp16|fp32|16|32|64|bfloat16|float16|float32|no|amp|mixed)(?:-mixed|-true)?", re.I
)
_OPTIMIZERS = re.compile(
    r"\w*(?:adam|sgd|lamb|lars|adagrad|adadelta|adafactor|muon|lion|rmsprop)\w*", re.I
)
_WORDS = {
    "precision": _PRECISIONS,
    "optimizer": _OPTIMIZERS,
    "arch": re.compile(r"[A-Za-z][\w./-]*[\d_/-][\w./-]*"),
}
"""What a value must look like to be believed; 'model_name = args' is none."""
_YES = {"true", "yes", "1"}
_LONGEST = 20_000


def settings_in(text: str) -> dict[str, Any]:
    """The first of each counts: what comes later is usually for validation."""
    found: dict[str, Any] = {}
    for match in _SETTING.finditer(text[:_LONGEST]):
        key = next(name for name, text in match.groupdict().items() if text is not None)
        if match["option"] and not match[0].startswith("--"):
            continue  # two words of a sentence
        value = next((part for part in match.groups()[-3:] if part is not None), "")
        if key not in found and (known := _understood(key, value)) is not None:
            found[key] = known
    return found


def _understood(key: str, value: str) -> Any:
    if key in ("fp16", "bf16"):
        return True if value.lower() in _YES else None
    if key in _WORDS:
        return value if _WORDS[key].fullmatch(value) else None
    figure = number(value)
    if figure is None or not math.isfinite(figure):
        return None
    return int(figure) if figure == int(figure) and key != "lr" else figure
