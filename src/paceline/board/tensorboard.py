"""TensorBoard beside the page: `python -m paceline.board.tensorboard LOGDIR PORT`, on loopback."""

import os
import socket
import subprocess
import sys
from pathlib import Path

LOOPBACK = "127.0.0.1"
PREFIX = "/tensorboard"
"""Where it is below the page's address."""


class TensorBoard:
    """A process that ends with ours, and whether it answers yet."""

    def __init__(self, directory: Path) -> None:
        self.port = free_port()
        self._answers = False
        command = [sys.executable, "-m", "paceline.board.tensorboard"]
        self._process = subprocess.Popen(
            [*command, str(directory), str(self.port)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
            env={**os.environ, "TF_CPP_MIN_LOG_LEVEL": "3"},
        )

    def address(self) -> str | None:
        """Below the page's own; None until it answers, which takes it some seconds."""
        if self._process.poll() is not None:
            return None
        self._answers = self._answers or _accepts(self.port)
        return f"{PREFIX}/" if self._answers else None

    def stop(self) -> None:
        self._process.terminate()
        try:
            self._process.wait(timeout=5)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind((LOOPBACK, 0))
        port: int = probe.getsockname()[1]
        return port


def _accepts(port: int) -> bool:
    with socket.socket() as probe:
        probe.settimeout(0.2)
        return probe.connect_ex((LOOPBACK, port)) == 0


def main() -> None:
    from paceline.lifetime import die_with_parent  # noqa: PLC0415

    die_with_parent()
    directory, port = sys.argv[1:3]
    from tensorboard.main import run_main  # noqa: PLC0415  (slow to import)

    options = ["--logdir", directory, "--host", LOOPBACK, "--port", port, "--path_prefix", PREFIX]
    sys.argv = ["tensorboard", *options, "--reload_multifile", "true", "--reload_interval", "5"]
    run_main()


if __name__ == "__main__":
    main()
