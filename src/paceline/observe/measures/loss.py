"""Reading numbers from tensors without making the script wait for a device.

On the CPU a number is there when it is computed. On a device numbers are gathered, copied together
without waiting, and read when the copy has arrived.
"""

from typing import Any

_PLAIN = ("Tensor", "Parameter")


def read_scalar(value: Any) -> float | None:
    """Of a logged value: a number, or a tensor or array of one element on the CPU."""
    if isinstance(value, bool) or value is None or isinstance(value, str):
        return None
    if isinstance(value, (int, float)):
        return float(value)
    try:
        if getattr(value, "is_cuda", False) or getattr(value, "numel", lambda: 1)() != 1:
            return None
        return float(value.item())
    except Exception:
        return None


def is_plain(tensor: Any) -> bool:
    """No DTensor and the like: reading one of those would be a collective."""
    return type(tensor).__name__ in _PLAIN and tensor.numel() == 1


class LateNumbers:
    """Numbers in the order in which they were given; None where one cannot be read."""

    def __init__(self, item: Any) -> None:
        """`item`: torch's own method, so that our reading is not taken for the script's."""
        self._item = item
        self.numbers: list[float | None] = []
        self._tensors: list[tuple[int, Any]] = []

    def add(self, tensor: Any) -> None:
        if not is_plain(tensor):
            self.numbers.append(None)
        elif tensor.is_cpu:
            self.numbers.append(self._item(tensor))
        else:
            self._tensors.append((len(self.numbers), tensor.detach()))
            self.numbers.append(None)

    def start_reading(self, torch: Any) -> "Reading":
        """Begin to copy; nothing waits. The list starts anew."""
        numbers, tensors = self.numbers, self._tensors
        self.numbers, self._tensors = [], []
        return Reading(torch, numbers, tensors)


class Reading:
    def __init__(
        self, torch: Any, numbers: list[float | None], tensors: list[tuple[int, Any]]
    ) -> None:
        self._numbers = numbers
        self._places = [place for place, _ in tensors]
        self._copy: Any = None
        self._event: Any = None
        if tensors:
            with torch.no_grad():
                together = torch.stack([tensor.reshape(()).float() for _, tensor in tensors])
                self._copy = together.to("cpu", non_blocking=True)
            if together.is_cuda:
                self._event = torch.cuda.Event()
                self._event.record()

    def numbers(self) -> list[float | None]:
        """Waits if the copy has not arrived, which it has a step later."""
        if self._copy is not None:
            if self._event is not None:
                self._event.synchronize()
            for place, number in zip(self._places, self._copy.tolist()):  # noqa: B905
                self._numbers[place] = number
        return self._numbers
