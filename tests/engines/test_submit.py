"""The command lines that hand job files in and give machines back, by the engines' own parsers."""

import argparse
import json
import shlex
import shutil
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest
import yaml

from paceline.errors import UserError
from paceline.jobfiles.request import Machine, Request
from paceline.jobfiles.submit import Engine, engine_of, refuse_taken_name
from tests.engines.job_files import KUBERNETES, OLD_CONFIG, VERTEX, launch

pytestmark = pytest.mark.engines


def engine(kind: str, **more: Any) -> Engine:
    machine = Machine("g4dn.2xlarge")
    return engine_of(kind, Request("train", ("paceline",), "/r", 2, machine=machine, **more))


def commands(found: Engine, file: Path) -> list[list[str]]:
    """Handing in, finding out whether the name is taken, and giving back."""
    back = [part.partition(" (")[0] for part in found.give_back.split(", then: ")]
    lines = [list(found.command), list(found.find), *map(shlex.split, back)]
    return [[w.replace("FILE", str(file)) for w in words] for words in lines if words]


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "job.yaml"
    path.write_text("run: echo\n", encoding="utf-8")
    return path


@pytest.mark.parametrize("more", [{}, {"spot": True, "storage": "s3://b"}, {"group": "paceline"}])
def test_skypilots_parser_takes_the_commands(more: dict[str, Any], file: Path) -> None:
    from sky.client.cli import command

    for words in commands(engine("sky", **more), file):
        parser: Any = command.cli
        assert words.pop(0) == "sky"
        while hasattr(parser, "commands"):
            parser = parser.commands[words.pop(0)]
        context = parser.make_context("sky", list(words))
        assert "train" in str(context.params), words


def test_dstacks_parser_takes_the_commands(file: Path) -> None:
    from dstack._internal.cli.commands.apply import ApplyCommand
    from dstack._internal.cli.commands.fleet import FleetCommand
    from dstack._internal.cli.commands.run import RunCommand
    from dstack._internal.cli.commands.stop import StopCommand

    parser = argparse.ArgumentParser()
    verbs = parser.add_subparsers()
    for verb in (ApplyCommand, FleetCommand, RunCommand, StopCommand):
        verb.register(verbs)
    for words in commands(engine("dstack"), file):
        assert words[0] == "dstack"
        _known, unknown = parser.parse_known_args(words[1:])
        assert not unknown


def test_the_lines_that_install_paceline_for_skypilot_are_uvs_own_words() -> None:
    """Each is parsed by uv itself, which then says that there is no such file, or helps."""
    from paceline.jobfiles.sky import write_sky

    text = write_sky(Request("train", ("paceline",), "/r", machine=Machine("x"), install="a"))
    lines = [line.strip() for line in text.splitlines() if line.strip().startswith("uv ")]
    assert len(lines) == 2
    for line in lines:
        words = [sys.executable, "-m", *shlex.split(line), "--help"]
        done = subprocess.run(words, capture_output=True, text=True, check=False)
        assert done.returncode == 0, done.stderr


class Server(ThreadingHTTPServer):
    """Stands for the far end of an engine's own command, and keeps what is handed in."""

    def __init__(self, api: type[BaseHTTPRequestHandler]) -> None:
        super().__init__(("127.0.0.1", 0), api)
        self.created: dict[str, dict[str, Any]] = {}

    @property
    def address(self) -> str:
        return f"http://127.0.0.1:{self.server_address[1]}"


@contextmanager
def serving(api: type[BaseHTTPRequestHandler]) -> Iterator[Server]:
    server = Server(api)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


class Api(BaseHTTPRequestHandler):
    server: Server

    def body(self) -> dict[str, Any]:
        read: dict[str, Any] = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        return read

    def answer(self, code: int, content: dict[str, Any]) -> None:
        text = json.dumps(content).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def log_message(self, format: str, *args: object) -> None:
        """Not into the tests' output."""


class Kubernetes(Api):
    """As much as `kubectl apply` and `kubectl get` ask for: kinds, and what was created."""

    group = "trainer.kubeflow.org"

    def do_GET(self) -> None:
        path = self.path.partition("?")[0]
        version = {"groupVersion": f"{self.group}/v1alpha1", "version": "v1alpha1"}
        listed = {"name": self.group, "versions": [version], "preferredVersion": version}
        kinds = {"trainjobs": "TrainJob", "trainingruntimes": "TrainingRuntime"}
        known: dict[str, dict[str, Any]] = {
            "/api": {"kind": "APIVersions", "versions": ["v1"]},
            "/apis": {"kind": "APIGroupList", "groups": [listed]},
            "/api/v1": {"kind": "APIResourceList", "groupVersion": "v1", "resources": []},
            f"/apis/{self.group}/v1alpha1": {
                "kind": "APIResourceList",
                "groupVersion": version["groupVersion"],
                "resources": [
                    {"name": n, "singularName": k.lower(), "namespaced": True, "kind": k}
                    | {"verbs": ["create", "get", "patch", "delete"]}
                    for n, k in kinds.items()
                ],
            },
        }
        found: dict[str, Any] | None = known.get(path) or self.server.created.get(path)
        self.answer(200 if found else 404, found or {"kind": "Status", "code": 404})

    def do_POST(self) -> None:
        body, path = self.body(), self.path.partition("?")[0]
        self.server.created[f"{path}/{body['metadata']['name']}"] = body
        self.answer(201, body)


@pytest.fixture
def cluster(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    if shutil.which("kubectl") is None:
        pytest.skip("kubectl is not installed")
    with serving(Kubernetes) as server:
        settings = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "here",
            "clusters": [{"name": "here", "cluster": {"server": server.address}}],
            "contexts": [{"name": "here", "context": {"cluster": "here"}}],
        }
        (tmp_path / "config").write_text(yaml.safe_dump(settings), encoding="utf-8")
        monkeypatch.setenv("KUBECONFIG", str(tmp_path / "config"))
        monkeypatch.setenv("HOME", str(tmp_path))
        yield server


def test_kubectl_hands_both_parts_of_the_file_in_and_finds_a_name_that_is_taken(
    cluster: Server, tmp_path: Path
) -> None:
    path = tmp_path / "job.yaml"
    path.write_text(launch("kubernetes", *KUBERNETES[0]), encoding="utf-8")
    request = Request("cifar10-tiny", ("paceline",), "/r")
    found = engine_of("kubernetes", request)
    refuse_taken_name(found)
    words = [word.replace("FILE", str(path)) for word in found.command]
    done = subprocess.run([*words, "--validate=false"], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    kinds = {body["kind"]: body for body in cluster.created.values()}
    assert set(kinds) == {"TrainJob", "TrainingRuntime"}
    assert kinds["TrainJob"]["spec"]["trainer"]["numNodes"] == 2
    with pytest.raises(UserError, match="the name is taken") as caught:
        refuse_taken_name(found)
    assert "--name" in caught.value.fix


class Vertex(Api):
    def do_POST(self) -> None:
        self.server.created[self.path.partition("?")[0]] = self.body()
        place = "projects/1/locations/us-central1/customJobs/7"
        self.answer(200, {"name": place, "state": "JOB_STATE_PENDING"})


@pytest.fixture
def vertex(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Server]:
    if shutil.which("gcloud") is None:
        pytest.skip("gcloud is not installed")
    with serving(Vertex) as server:
        monkeypatch.setenv("HOME", str(tmp_path))
        monkeypatch.setenv("CLOUDSDK_CONFIG", str(tmp_path / "gcloud"))
        monkeypatch.setenv("CLOUDSDK_CORE_PROJECT", "some-project")
        monkeypatch.setenv("CLOUDSDK_AUTH_ACCESS_TOKEN", "nobodys")
        where = f"{server.address}/"
        monkeypatch.setenv("CLOUDSDK_API_ENDPOINT_OVERRIDES_AIPLATFORM", where)
        yield server


def old_config(folder: Path) -> tuple[str, ...]:
    path = folder / "config.yaml"
    path.write_text(OLD_CONFIG, encoding="utf-8")
    return ("import", str(path), "--image", "europe-docker.pkg.dev/vertex-ai/t:1")


@pytest.mark.parametrize("number", range(len(VERTEX) + 1))
def test_gcloud_sends_vertex_what_the_file_says_and_nothing_else(
    number: int, tmp_path: Path, vertex: Server
) -> None:
    """Of jobs, and of an old configuration of AI Platform."""
    jobs = [("vertex", *words) for words in VERTEX] + [old_config(tmp_path)]
    path = tmp_path / "job.yaml"
    path.write_text(launch(*jobs[number]), encoding="utf-8")
    found = engine("vertex", region="us-central1")
    command = [word.replace("FILE", str(path)) for word in found.command]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    ((place, body),) = vertex.created.items()
    assert place == "/v1/projects/some-project/locations/us-central1/customJobs"
    spec = yaml.safe_load(path.read_text(encoding="utf-8"))
    assert body == {"displayName": "train", "jobSpec": spec}
