"""What an exchange is seen to do: how much went out, and what of it compute did not hide."""

import time
from dataclasses import dataclass

from paceline.train.measure.device_clock import DeviceMarks


@dataclass
class ReductionWatch:
    """Filled during backward. Communication can only be hidden until the last bucket is ready;
    what backward still takes from then on is waiting."""

    marks: DeviceMarks
    last_bucket_ready: float = 0.0
    reduced_bytes: int = 0

    def waited_seconds(self) -> float:
        """Since the last bucket was ready. To be asked right after backward."""
        return time.perf_counter() - self.last_bucket_ready if self.last_bucket_ready else 0.0

    def start_step(self) -> None:
        self.last_bucket_ready = 0.0

    def bucket_is_ready(self, num_bytes: int) -> None:
        """So many bytes, as they go on the wire, are given to the exchange now."""
        self.reduced_bytes += num_bytes
        self.last_bucket_ready = time.perf_counter()
        self.marks.mark("ready")

    def take_reduced_bytes(self) -> int:
        taken, self.reduced_bytes = self.reduced_bytes, 0
        return taken
