"""What launchers put before a line: srun's and mpirun's ranks, torchrun's, kubectl's pods."""

import re

_RANKED = re.compile(
    r"^(?:"
    r"\[(?:default|rank)?(\d{1,5})\]:?\s?"  # torchrun --tee, torch's [rank3]:
    r"|\[\d+,(\d{1,5})\]<std(?:out|err)>:\s?"  # mpirun --tag-output
    r"|(\d{1,5}):\s"  # srun --label
    r"|\[pod/[\w.-]*?-(?:worker|node|master|rank)?-?(\d{1,5})/[\w.-]+\]\s"  # kubectl logs --prefix
    r")"
)
_FIRST = frozenset("[0123456789")


def split_rank(line: str) -> tuple[str, str]:
    """The rank that a launcher wrote before the line, or nothing, and the line as it was."""
    if line[:1] not in _FIRST:
        return "", line
    match = _RANKED.match(line)
    if match is None:
        return "", line
    return next(part for part in match.groups() if part is not None), line[match.end() :]
