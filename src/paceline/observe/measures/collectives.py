"""Communication that was not hidden behind backward, by DDP's own timer."""

from typing import Any

_NANOSECONDS = 1e-9


class ExposedNetwork:
    """Of all DDP networks together. DDP tells averages over the steps that it timed; on a CPU it
    times every one, on a device one in a hundred, because timing waits for the device."""

    def __init__(self, networks: list[Any]) -> None:
        self._networks = networks
        self._totals: dict[int, float] = {}
        self._usual = 0.0
        """In a step, as far as was told."""
        self.reduced_bytes = 0.0
        """Of gradients, in each step."""

    def take_seconds(self, num_steps: int, is_last: bool) -> float:
        """Since the last time, in which so many steps were done. DDP tells of a step when the next
        begins, so that the last of all is taken to be as those before."""
        alive = [network for weak in self._networks if (network := weak()) is not None]
        if not alive:  # the script is done with them, but not all that they did was told
            return self._usual * num_steps
        seconds, num_bytes, self._usual = 0.0, 0.0, 0.0
        for network in alive:
            told = network._get_ddp_logging_data()
            num_bytes += told.get("total_parameter_size_bytes", 0)
            hidden = told.get("avg_backward_compute_comm_overlap_time", 0)
            exposed = max(told.get("avg_backward_comm_time", 0) - hidden, 0) * _NANOSECONDS
            self._usual += exposed
            if told.get("device_ids") or told.get("output_device", -1) >= 0:
                seconds += exposed * num_steps
            else:
                seconds += self._since_last(id(network), exposed * (told["iteration"] + is_last))
        self.reduced_bytes = num_bytes
        return seconds

    def _since_last(self, key: int, total: float) -> float:
        before, self._totals[key] = self._totals.get(key, 0.0), total
        return max(total - before, 0.0)
