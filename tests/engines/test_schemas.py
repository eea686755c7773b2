"""Job files are what their engines take, by the word of the engines' own schemas."""

import json
from importlib import resources
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.engines.job_files import DSTACK, FLEET, KUBERNETES, OLD_CONFIG, SKY, VERTEX, launch

pytestmark = pytest.mark.engines

MISSPELT = "runs_on_mars"


def documents(*words: str) -> list[dict[str, Any]]:
    return list(yaml.safe_load_all(launch(*words)))


def check_sky(task: dict[str, Any]) -> None:
    """As SkyPilot does: the task, its resources and each mount have schemas of their own."""
    from sky.utils import common_utils, schemas

    common_utils.validate_schema(task, schemas.get_task_schema(), "task: ")
    common_utils.validate_schema(task["resources"], schemas.get_resources_schema(), "resources: ")
    for mount in task.get("file_mounts", {}).values():
        if isinstance(mount, str):  # of this machine, as Paceline's own source
            assert Path(mount).exists()
        else:
            common_utils.validate_schema(mount, schemas.get_storage_schema(), "mount: ")


@pytest.mark.parametrize("words", SKY)
def test_skypilot_takes_the_task(words: tuple[str, ...]) -> None:
    (task,) = documents("sky", *words)
    check_sky(task)
    assert "ports" not in task["resources"], "closed to the world"
    with pytest.raises(ValueError, match=MISSPELT):
        check_sky({**task, "resources": {**task["resources"], MISSPELT: 1}})


@pytest.mark.parametrize("words", DSTACK)
def test_dstack_takes_the_task(words: tuple[str, ...]) -> None:
    from dstack._internal.core.models.configurations import parse_apply_configuration

    (task,) = documents("dstack", *words)
    parse_apply_configuration(task)
    with pytest.raises(Exception, match=MISSPELT):
        parse_apply_configuration({**task, MISSPELT: 1})


def test_dstack_takes_a_fleet_of_the_hosts_file(tmp_path: Path) -> None:
    from dstack._internal.core.models.configurations import parse_apply_configuration

    hosts = tmp_path / "hosts.yaml"
    hosts.write_text(FLEET, encoding="utf-8")
    (fleet,) = documents("dstack", "--fleet", str(hosts))
    parsed: Any = parse_apply_configuration(fleet)
    assert [host.hostname for host in parsed.ssh_config.hosts] == ["10.0.0.1", "10.0.0.2"]


@pytest.mark.parametrize("words", KUBERNETES)
def test_kubeflow_trainer_reads_all_of_the_runtime_and_the_job(words: tuple[str, ...]) -> None:
    """Its models pass over misspelt fields, so what was read is written again and compared."""
    from kubeflow_trainer_api import models

    runtime, job = documents("kubernetes", *words)
    assert models.TrainerV1alpha1TrainingRuntime.from_dict(runtime).to_dict() == runtime
    assert models.TrainerV1alpha1TrainJob.from_dict(job).to_dict() == job
    job["spec"]["trainer"][MISSPELT] = 1
    assert models.TrainerV1alpha1TrainJob.from_dict(job).to_dict() != job
    assert job["spec"]["runtimeRef"]["name"] == runtime["metadata"]["name"]


class Discovery:
    """The API's own description: which fields there are, of which types, with which values."""

    def __init__(self) -> None:
        cache = resources.files("googleapiclient") / "discovery_cache" / "documents"
        text = (cache / "aiplatform.v1.json").read_text(encoding="utf-8")
        self._schemas = json.loads(text)["schemas"]

    def check(self, value: Any, schema: dict[str, Any], place: str = "") -> None:
        if "$ref" in schema:
            schema = self._schemas[schema["$ref"]]
        types: dict[str, Any] = {"object": dict, "array": list, "string": str, "boolean": bool}
        expected = types.get(schema["type"], int)
        assert isinstance(value, expected), f"{place} is {value!r}, not {schema['type']}"
        if "enum" in schema:
            assert value in schema["enum"], f"{place} is {value!r}"
        if isinstance(value, list):
            for number, part in enumerate(value):
                self.check(part, schema["items"], f"{place}[{number}]")
        if isinstance(value, dict) and "properties" in schema:
            for name, part in value.items():
                assert name in schema["properties"], f"{place} has no field {name}"
                self.check(part, schema["properties"][name], f"{place}.{name}")

    def check_job(self, spec: dict[str, Any]) -> None:
        self.check(spec, {"$ref": "GoogleCloudAiplatformV1CustomJobSpec"})


@pytest.mark.parametrize("words", VERTEX)
def test_vertex_knows_every_field_of_the_job(words: tuple[str, ...]) -> None:
    (spec,) = documents("vertex", *words)
    Discovery().check_job(spec)
    spec["workerPoolSpecs"][0]["machineSpec"]["acceleratorType"] = "ABACUS"
    with pytest.raises(AssertionError, match="ABACUS"):
        Discovery().check_job(spec)


def test_vertex_knows_every_accelerator_that_is_offered() -> None:
    from paceline.jobfiles.vertex import _ACCELERATORS

    for name in _ACCELERATORS.values():
        machine = {"machineType": "n1-standard-8", "acceleratorType": name}
        Discovery().check_job({"workerPoolSpecs": [{"machineSpec": machine}]})


def test_an_old_configuration_of_ai_platform_becomes_a_job_that_vertex_knows(
    tmp_path: Path,
) -> None:
    old = tmp_path / "config.yaml"
    old.write_text(OLD_CONFIG, encoding="utf-8")
    (spec,) = documents("import", str(old), "--image", "europe-docker.pkg.dev/vertex-ai/t:1")
    Discovery().check_job(spec)
    counts = [pool.get("replicaCount") for pool in spec["workerPoolSpecs"]]
    assert counts == ["1", "3", "2"]
    assert spec["scheduling"]["timeout"] == "7200s"


def test_job_files_are_written_where_torch_is_not_installed() -> None:
    assert find_spec("torch") is None
    assert "num_nodes: 2" in launch("sky", *SKY[0])
