"""AWS limits vCPUs by family and way of paying; each limit has a code. Pure."""

import re
from dataclasses import dataclass

_NONE = ("", "")
_P = ("P", "L-417A185B")
_FAMILIES: tuple[tuple[str, tuple[str, str], tuple[str, str]], ...] = (
    ("p[234]", _P, ("P4, P3 and P2", "L-7212CCBC")),
    ("p5", _P, ("P5", "L-C4BD4855")),
    ("p", _P, _NONE),
    ("g|vt", ("G and VT", "L-DB2E81BA"), ("G and VT", "L-3819A6DF")),
    ("trn", ("Trn", "L-2C3B7624"), ("Trn", "L-6B0D517C")),
    ("inf", ("Inf", "L-1945791B"), ("Inf", "L-B5D1601B")),
    ("dl", ("DL", "L-6E869C2A"), ("DL", "L-85EED4F7")),
    ("f", ("F", "L-74FC7D96"), ("F", "L-88CF9481")),
    ("x", ("X", "L-7295265B"), ("X", "L-E3A00192")),
    ("hpc", ("HPC", "L-F7808C92"), _NONE),
    ("u", ("High Memory", "L-43DA4232"), _NONE),
    ("mac", _NONE, _NONE),
    (
        "[acdhimrtz]",
        ("Standard (A, C, D, H, I, M, R, T, Z)", "L-1216C47A"),
        ("Standard (A, C, D, H, I, M, R, T, Z)", "L-34B43A08"),
    ),
)
"""How types begin (the first that fits counts), and the names and codes of the limits on demand
and for spot requests, as AWS lists them under "Amazon EC2 endpoints and quotas"."""


@dataclass(frozen=True)
class Quota:
    family: str
    code: str
    spot: bool

    def covers(self, instance_type: str) -> bool:
        return quota_of(instance_type, self.spot) == self


def quota_of(instance_type: str, spot: bool) -> Quota | None:
    """None where there is no such limit, or none that is known here."""
    for pattern, on_demand, for_spot in _FAMILIES:
        if re.match(pattern, instance_type):
            name, code = for_spot if spot else on_demand
            kind = "Spot" if spot else "On-Demand"
            return Quota(f"{kind} {name} instances", code, spot) if code else None
    return None
