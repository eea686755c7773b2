"""TensorBoard below the page's own address, so that one port, and one ssh tunnel, is enough.

A request for /tensorboard/... is handed to the TensorBoard of this machine, and its answer back.
The page's own rules hold before that: loopback only, called by a loopback name, and what is sent
with POST (TensorBoard asks for curves that way) comes from a page of this very server.
"""

import http.client
from dataclasses import dataclass
from email.message import Message

from paceline.board.tensorboard import LOOPBACK, PREFIX

MOST_SENT_BYTES = 1 << 20
_SECONDS = 60.0
_ASKED_WITH = ("Accept", "Accept-Encoding", "Accept-Language", "Content-Type", "Range")
_KEPT = ("content-type", "content-encoding", "content-security-policy", "x-content-type-options")
STRICTER_POLICY = "frame-ancestors 'self'; form-action 'none'"
"""Beside TensorBoard's own, which lets any page embed it; a browser obeys both."""


@dataclass(frozen=True)
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes


def is_tensorboards(path: str) -> bool:
    return path.startswith(f"{PREFIX}/") and ".." not in path


def is_from_here(headers: Message, hosts: set[str]) -> bool:
    """Browsers name the page that a POST comes from; a foreign one has no business here."""
    origin = headers.get("Origin")
    return origin is None or origin.lower() in {f"http://{host}" for host in hosts}


def pass_on(port: int, method: str, path: str, headers: Message, sent: bytes) -> Answer:
    """Ask TensorBoard on its own port; raises OSError or HTTPException where it does not answer."""
    asked = {name: headers[name] for name in _ASKED_WITH if name in headers}
    connection = http.client.HTTPConnection(LOOPBACK, port, timeout=_SECONDS)
    try:
        connection.request(method, path, body=sent if method == "POST" else None, headers=asked)
        response = connection.getresponse()
        kept = {n: v for n, v in response.getheaders() if n.lower() in _KEPT}
        return Answer(response.status, kept, response.read())
    finally:
        connection.close()
