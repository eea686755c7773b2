"""Steps of an optimizer that the script has compiled: its hooks are not in the compiled code, but
every tensor counts how often it was changed."""

import weakref
from typing import Any

_NUM_LOOKED_AT = 8


class UnseenSteps:
    def __init__(self) -> None:
        self._made: list[Any] = []
        self._known: dict[int, int] = {}

    def follow(self, optimizer: Any) -> None:
        self._made.append(weakref.ref(optimizer))

    def note(self, optimizer: Any) -> None:
        """Its weights are as its last step left them."""
        self._known[id(optimizer)] = _num_changes(optimizer)

    def stepped(self) -> list[Any]:
        """Optimizers whose weights have changed since they were looked at."""
        alive = [optimizer for weak in self._made if (optimizer := weak()) is not None]
        found = []
        for optimizer in alive:
            before, now = self._known.get(id(optimizer)), _num_changes(optimizer)
            self._known[id(optimizer)] = now
            if before is not None and before != now:
                found.append(optimizer)
        return found


def _num_changes(optimizer: Any) -> int:
    parameters = optimizer.param_groups[0]["params"][:_NUM_LOOKED_AT]
    return sum(parameter._version for parameter in parameters)
