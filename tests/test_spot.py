"""A cloud that takes a spot machine away says so at an address of the machine's own."""

import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from paceline.launch.batch.spot import find_notice


class Metadata(ThreadingHTTPServer):
    """The metadata services of AWS (version 2, with a token) and of Google Cloud."""

    is_going = False
    is_google = False

    @property
    def variables(self) -> dict[str, str]:
        host = f"127.0.0.1:{self.server_address[1]}"
        return {"AWS_EC2_METADATA_SERVICE_ENDPOINT": f"http://{host}", "GCE_METADATA_HOST": host}


class Answers(BaseHTTPRequestHandler):
    server: Metadata

    def do_PUT(self) -> None:
        is_token = self.path == "/latest/api/token" and not self.server.is_google
        self._answer(200 if is_token else 404, "a-token")

    def do_GET(self) -> None:
        if self.path == "/computeMetadata/v1/instance/preempted" and self.server.is_google:
            knows = self.headers.get("Metadata-Flavor") == "Google"
            self._answer(200 if knows else 403, "TRUE" if self.server.is_going else "FALSE")
        elif self.path == "/latest/meta-data/spot/instance-action" and self.server.is_going:
            knows = self.headers.get("X-aws-ec2-metadata-token") == "a-token"
            self._answer(200 if knows else 401, '{"action": "terminate"}')
        else:
            self._answer(404, "")

    def _answer(self, code: int, text: str) -> None:
        self.send_response(code)
        self.end_headers()
        self.wfile.write(text.encode())

    def log_message(self, format: str, *args: object) -> None:
        """Not into the tests' output."""


@pytest.fixture
def metadata() -> Iterator[Metadata]:
    server = Metadata(("127.0.0.1", 0), Answers)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server
    server.shutdown()
    server.server_close()


@pytest.mark.parametrize(("is_google", "name"), [(False, "AWS"), (True, "Google Cloud")])
def test_a_notice_is_seen_when_it_comes(metadata: Metadata, is_google: bool, name: str) -> None:
    metadata.is_google = is_google
    assert find_notice(metadata.variables) is None
    metadata.is_going = True
    assert find_notice(metadata.variables) == name


def test_where_no_metadata_service_answers_there_is_no_notice() -> None:
    nobody = {"AWS_EC2_METADATA_SERVICE_ENDPOINT": "http://127.0.0.1:9"}
    assert find_notice({**nobody, "GCE_METADATA_HOST": "127.0.0.1:9"}) is None


def test_a_run_on_a_spot_machine_saves_and_ends_with_the_code_that_has_it_started_again(
    metadata: Metadata, pictures: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "paceline.cli", "train", "cifar10-tiny", f"data={pictures}"]
    settings = [
        "steps=4000",
        "checkpoint.every_steps=2",
        "device=cpu",
        "--run",
        str(tmp_path / "r"),
    ]
    asking = {"PACELINE_SPOT": "1", "PACELINE_SPOT_SECONDS": "0.2", **metadata.variables}
    process = subprocess.Popen(
        [*command, *settings],
        env={**os.environ, **asking},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until = time.monotonic() + 120
        while not list((tmp_path / "r" / "checkpoints").glob("step-*")):
            assert process.poll() is None and time.monotonic() < until
            time.sleep(0.1)
        metadata.is_going = True
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert process.returncode == 143, said
    assert "AWS takes this machine away" in said
    assert "stopped; saved at step" in said


SAVES = """
import signal, sys, time
from pathlib import Path

def save(*_signal):
    Path(sys.argv[1]).write_text("saved")
    sys.exit(0)

signal.signal(signal.SIGTERM, save)
Path(sys.argv[1]).with_suffix(".ready").touch()
time.sleep(120)
"""


def test_a_script_on_a_spot_machine_is_told_to_end_and_started_again_by_the_engine(
    metadata: Metadata, tmp_path: Path
) -> None:
    """It ends with 0, as scripts do that save when they are told to; the engine must not take
    that for the end of the training."""
    script, saved = tmp_path / "train.py", tmp_path / "saved.txt"
    script.write_text(SAVES, encoding="utf-8")
    asking = {"PACELINE_SPOT": "1", "PACELINE_SPOT_SECONDS": "0.2", **metadata.variables}
    process = subprocess.Popen(
        [sys.executable, "-m", "paceline.cli", "run", str(script), str(saved)],
        cwd=tmp_path,
        env={**os.environ, **asking, "PACELINE_GIVE_BACK": "sky down train"},
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until = time.monotonic() + 60
        while not saved.with_suffix(".ready").exists():
            assert process.poll() is None and time.monotonic() < until
            time.sleep(0.1)
        metadata.is_going = True
        _, said = process.communicate(timeout=60)
    finally:
        process.kill()
    assert saved.read_text(encoding="utf-8") == "saved"
    assert process.returncode == 143, said
    assert "give the machines back" not in said, "it goes on"


def test_the_end_of_a_run_says_which_command_gives_the_machines_back(tmp_path: Path) -> None:
    script = tmp_path / "train.py"
    script.write_text("print('done')", encoding="utf-8")
    done = subprocess.run(
        [sys.executable, "-m", "paceline.cli", "run", str(script)],
        cwd=tmp_path,
        env={**os.environ, "PACELINE_GIVE_BACK": "sky down train\x1b[31m"},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0
    assert "to give the machines back: sky down train" in done.stderr
    assert "\x1b" not in done.stderr
