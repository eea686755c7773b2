"""Old configuration files of AI Platform Training, which is switched off, as jobs of Vertex AI.

Such a file has a scale tier, machine types per role, and how many workers and parameter servers;
the code came as packages with a module to start.
"""

from pathlib import Path
from typing import Annotated, Any

import yaml
from pydantic import (
    AliasGenerator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    NonNegativeInt,
    PositiveInt,
    ValidationError,
    create_model,
)
from pydantic.alias_generators import to_camel

from paceline.errors import Say, UserError
from paceline.jobfiles.document import to_yaml
from paceline.jobfiles.request import job_name
from paceline.jobfiles.vertex import vertex_heading

_TIERS: dict[str, tuple[str, int, int]] = {
    "BASIC": ("n1-standard-4", 0, 0),
    "BASIC_GPU": ("n1-standard-8", 0, 0),
    "STANDARD_1": ("n1-highcpu-8", 4, 3),
    "PREMIUM_1": ("n1-highcpu-16", 19, 11),
}
"""Machine of the leader, number of other workers, number of parameter servers."""
_LEGACY_MACHINES = {
    "standard": "n1-standard-4",
    "large_model": "n1-highmem-8",
    "complex_model_s": "n1-highcpu-8",
    "complex_model_m": "n1-highcpu-16",
    "complex_model_l": "n1-highcpu-32",
    "standard_gpu": "n1-standard-8",
    "standard_p100": "n1-standard-8",
    "complex_model_m_gpu": "n1-standard-16",
}
_LEGACY_ACCELERATORS = {
    "standard_gpu": ("NVIDIA_TESLA_T4", 1),
    "standard_p100": ("NVIDIA_TESLA_P100", 1),
    "complex_model_m_gpu": ("NVIDIA_TESLA_T4", 4),
}
_ROLES = (("master", 1), ("worker", 0), ("parameterServer", 0), ("evaluator", 0))
_CAMEL_CASE = ConfigDict(alias_generator=AliasGenerator(to_camel), extra="allow")
_Word = Annotated[str, BeforeValidator(lambda value: str(value) if _is_scalar(value) else value)]
"""YAML reads 1.15 and 1000 as numbers."""


def _is_scalar(value: Any) -> bool:
    return isinstance(value, str | int | float)


class _Accelerators(BaseModel):
    type: str
    count: PositiveInt


class _RoleConfig(BaseModel):
    model_config = _CAMEL_CASE
    image_uri: str | None = None
    accelerator_config: _Accelerators | None = None
    container_command: list[_Word] | None = None
    container_args: list[_Word] | None = None


class _Scheduling(BaseModel):
    model_config = _CAMEL_CASE
    max_running_time: _Word | None = None


class _TrainingInput(BaseModel):
    """What is asked of every role alike; `_Settings` has those of each as well."""

    model_config = _CAMEL_CASE
    scale_tier: str = "BASIC"
    package_uris: list[str] | None = None
    python_module: str | None = None
    args: list[_Word] | None = None
    region: str | None = None
    runtime_version: _Word | None = None
    python_version: _Word | None = None
    job_dir: str | None = None
    scheduling: _Scheduling | None = None
    labels: dict[str, _Word] | None = None
    service_account: str | None = None
    network: str | None = None


_OF_EACH_ROLE = {"Type": str, "Config": _RoleConfig, "Count": NonNegativeInt}
_Settings: type[_TrainingInput] = create_model(  # type: ignore[call-overload]
    "_Settings",
    __base__=_TrainingInput,
    **{
        f"{role}{part}": (kind | None, None)
        for role, _ in _ROLES
        for part, kind in _OF_EACH_ROLE.items()
    },
)
_KNOWN = {field.alias or name for name, field in _Settings.model_fields.items()}


def import_config(path: Path, image: str | None, say: Say) -> str:
    """The text of a Vertex AI job; what has no counterpart is said."""
    settings = _read(path)
    for name in sorted(set(settings) - _KNOWN):
        say(f"{path}: '{name}' has no counterpart, left out")
    if settings.get("runtimeVersion"):
        say(
            f"{path}: runtimeVersion {settings['runtimeVersion']} is gone; the container decides "
            "which versions there are (--image)"
        )
    pools = [_pool(settings, role, image) for role, _ in _ROLES]
    while pools and not pools[-1]:
        pools.pop()
    spec = {
        "workerPoolSpecs": pools,
        "scheduling": _scheduling(settings),
        "serviceAccount": settings.get("serviceAccount"),
        "network": settings.get("network"),
        "baseOutputDirectory": {"outputUriPrefix": settings["jobDir"]}
        if settings.get("jobDir")
        else None,
    }
    return to_yaml(vertex_heading(job_name(path.stem), settings.get("region")), spec)


def _read(path: Path) -> dict[str, Any]:
    try:
        content = yaml.safe_load(path.read_text(encoding="utf-8"))
    except (OSError, UnicodeDecodeError, yaml.YAMLError) as error:
        raise UserError(f"cannot read {path}: {error}", "check the path") from error
    settings = content.get("trainingInput", content) if isinstance(content, dict) else None
    if not isinstance(settings, dict) or not set(settings) & _KNOWN:
        raise UserError(
            f"{path} is no configuration of AI Platform Training",
            "such a file has `trainingInput:` with `scaleTier`, `masterType` and the like",
        )
    try:
        read = _Settings.model_validate(settings)
    except ValidationError as error:
        wrong = "; ".join(_in_words(mistake) for mistake in error.errors())
        raise UserError(f"{path}: {wrong}", "correct it there") from error
    return read.model_dump(by_alias=True, exclude_unset=True)


def _in_words(mistake: Any) -> str:
    place = ".".join(str(part) for part in mistake["loc"])
    return f"{place}: {str(mistake['msg']).partition(' or instance of')[0]}"


def _pool(settings: dict[str, Any], role: str, image: str | None) -> dict[str, Any]:
    machine, num_workers, num_servers = _tier(settings)
    by_tier = {"master": 1, "worker": num_workers, "parameterServer": num_servers}
    count = 1 if role == "master" else settings.get(f"{role}Count", by_tier.get(role, 0))
    if not count:
        return {}
    named = str(settings.get(f"{role}Type") or settings.get("masterType") or machine)
    return {
        "machineSpec": _machine(settings, role, named),
        "replicaCount": str(count),
        **_program(settings, role, image),
    }


def _tier(settings: dict[str, Any]) -> tuple[str, int, int]:
    tier = str(settings.get("scaleTier", "BASIC")).upper()
    if tier == "CUSTOM":
        if "masterType" not in settings:
            raise UserError("scaleTier CUSTOM needs masterType", "add masterType: n1-standard-8")
        return str(settings["masterType"]), 0, 0
    if tier not in _TIERS:
        known = ", ".join([*_TIERS, "CUSTOM"])
        raise UserError(f"scaleTier {tier} has no counterpart", f"one of: {known}")
    return _TIERS[tier]


def _machine(settings: dict[str, Any], role: str, named: str) -> dict[str, Any]:
    config = settings.get(f"{role}Config") or {}
    asked = config.get("acceleratorConfig") or {}
    accelerator, count = asked.get("type"), asked.get("count")
    if accelerator is None and named in _LEGACY_ACCELERATORS:
        accelerator, count = _LEGACY_ACCELERATORS[named]
    if accelerator is None and str(settings.get("scaleTier")).upper() == "BASIC_GPU":
        accelerator, count = "NVIDIA_TESLA_T4", 1
    return {
        "machineType": _LEGACY_MACHINES.get(named, named),
        "acceleratorType": accelerator,
        "acceleratorCount": count,
    }


def _program(settings: dict[str, Any], role: str, image: str | None) -> dict[str, Any]:
    config = settings.get(f"{role}Config") or settings.get("masterConfig") or {}
    arguments = settings.get("args") or []
    if config.get("imageUri"):
        words = config.get("containerCommand")
        return {
            "containerSpec": {
                "imageUri": config["imageUri"],
                "command": words,
                "args": [*(config.get("containerArgs") or []), *arguments],
            }
        }
    if image is None:
        raise UserError(
            "the file names no container, and AI Platform's own versions are gone",
            "--image: a container of Vertex AI for training, or one of yours",
        )
    return {
        "pythonPackageSpec": {
            "executorImageUri": image,
            "packageUris": settings.get("packageUris"),
            "pythonModule": settings.get("pythonModule"),
            "args": arguments,
        }
    }


def _scheduling(settings: dict[str, Any]) -> dict[str, Any]:
    limit = (settings.get("scheduling") or {}).get("maxRunningTime")
    return {"timeout": limit}
