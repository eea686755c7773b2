"""AWS limits vCPUs by family and way of paying; each limit has a code. Pure."""

import re
from dataclasses import dataclass

_FAMILIES: tuple[tuple[str, str, str, str], ...] = (
    ("p", "P", "L-417A185B", "L-7212CCBC"),
    ("g vt", "G and VT", "L-DB2E81BA", "L-3819A6DF"),
    ("trn", "Trn", "L-2C3B7624", "L-6B0D517C"),
    ("inf", "Inf", "L-1945791B", "L-B5D1601B"),
    ("dl", "DL", "L-6E869C2A", "L-85EED4F7"),
    ("f", "F", "L-74FC7D96", "L-88CF9481"),
    ("x", "X", "L-7295265B", "L-E3A00192"),
    ("a c d h i m r t z", "Standard (A, C, D, H, I, M, R, T, Z)", "L-1216C47A", "L-34B43A08"),
)
"""Letters of types, the family's name, and the codes on demand and for spot requests."""


@dataclass(frozen=True)
class Quota:
    family: str
    code: str
    letters: frozenset[str]

    def covers(self, instance_type: str) -> bool:
        return letters_of(instance_type) in self.letters


def letters_of(instance_type: str) -> str:
    """'g4dn.2xlarge' is of 'g', 'trn1.2xlarge' of 'trn', 'im4gn.large' of 'i'."""
    found = re.match(r"[a-z]+", instance_type)
    letters = found[0] if found else ""
    known = {word for words, _, _, _ in _FAMILIES for word in words.split()}
    return letters if letters in known else letters[:1]


def quota_of(instance_type: str, spot: bool) -> Quota | None:
    letters = letters_of(instance_type)
    for words, name, on_demand, for_spot in _FAMILIES:
        if letters in words.split():
            kind = "Spot" if spot else "On-Demand"
            code = for_spot if spot else on_demand
            return Quota(f"{kind} {name} instances", code, frozenset(words.split()))
    return None
