"""Notices that a spot machine is about to be taken away, told as SIGTERM: save, and end in order.

Kubernetes and Vertex AI send that signal themselves. On plain machines of a cloud the notice stands
at an address that only the machine itself can ask; job files with spot machines set PACELINE_SPOT,
and then it is asked every few seconds.
"""

import os
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager

from paceline.errors import Say

_EVERY_SECONDS = 5.0
_TIMEOUT_SECONDS = 2.0


@contextmanager
def watching_for_notice(
    end: Callable[[], None], say: Say, variables: Mapping[str, str] = os.environ
) -> Iterator[None]:
    """Calls `end` once when the cloud says that this machine goes."""
    if not is_spot_machine(variables):
        yield
        return
    over = threading.Event()

    def watch() -> None:
        while not over.wait(_every_seconds(variables)):
            if (cloud := find_notice(variables)) is not None:
                say(f"{cloud} takes this machine away: saving, then ending")
                end()
                return

    threading.Thread(target=watch, name="spot notice", daemon=True).start()
    try:
        yield
    finally:
        over.set()


def is_spot_machine(variables: Mapping[str, str] = os.environ) -> bool:
    """As the job file says."""
    return variables.get("PACELINE_SPOT") == "1"


def find_notice(variables: Mapping[str, str] = os.environ) -> str | None:
    """Which cloud takes this machine away; None where none does, or none can be asked."""
    if _aws_says_so(variables):
        return "AWS"
    return "Google Cloud" if _google_says_so(variables) else None


def _every_seconds(variables: Mapping[str, str]) -> float:
    return float(variables.get("PACELINE_SPOT_SECONDS", _EVERY_SECONDS))


def _aws_says_so(variables: Mapping[str, str]) -> bool:
    """404 until there is a notice; the variable for another address is that of AWS's own tools."""
    where = variables.get("AWS_EC2_METADATA_SERVICE_ENDPOINT", "http://169.254.169.254")
    where = where.rstrip("/")
    lifetime = {"X-aws-ec2-metadata-token-ttl-seconds": "60"}
    token = _ask(f"{where}/latest/api/token", lifetime, method="PUT")
    if token is None:
        return False
    header = {"X-aws-ec2-metadata-token": token}
    return _ask(f"{where}/latest/meta-data/spot/instance-action", header) is not None


def _google_says_so(variables: Mapping[str, str]) -> bool:
    host = variables.get("GCE_METADATA_HOST", "169.254.169.254")
    where = f"http://{host}/computeMetadata/v1/instance/preempted"
    return (_ask(where, {"Metadata-Flavor": "Google"}) or "").strip().upper() == "TRUE"


def _ask(where: str, headers: dict[str, str], method: str = "GET") -> str | None:
    """Never through a proxy: the address means this machine, and no other."""
    if not where.startswith("http://"):
        return None
    request = urllib.request.Request(where, headers=headers, method=method)  # noqa: S310
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))
    try:
        with opener.open(request, timeout=_TIMEOUT_SECONDS) as answer:
            return str(answer.read(4096).decode("utf-8", "replace"))
    except (OSError, urllib.error.URLError, ValueError):
        return None
