"""Communication that was not hidden behind backward, by DDP's own timer."""

from typing import Any

_NANOSECONDS = 1e-9


class ExposedNetwork:
    """Of all DDP networks together. DDP tells averages over the steps that it timed; on a CPU it
    times every one, on a device one in a hundred, because timing waits for the device."""

    def __init__(self, networks: list[Any]) -> None:
        self._networks = networks
        self._totals: dict[int, float] = {}
        self.reduced_bytes = 0.0
        """Of gradients, in each step."""

    def take_seconds(self, num_steps: int, is_last: bool) -> float:
        """Since the last time, in which so many steps were done. DDP tells of a step when the next
        begins, so that the last of all is taken to be as those before."""
        seconds, num_bytes = 0.0, 0.0
        for weak in self._networks:
            network = weak()
            if network is None:
                continue
            told = network._get_ddp_logging_data()
            num_bytes += told.get("total_parameter_size_bytes", 0)
            seconds += self._of_network(id(network), told, num_steps, is_last)
        self.reduced_bytes = num_bytes
        return seconds

    def _of_network(self, key: int, told: dict[str, Any], num_steps: int, is_last: bool) -> float:
        hidden = told.get("avg_backward_compute_comm_overlap_time", 0)
        exposed = max(told.get("avg_backward_comm_time", 0) - hidden, 0) * _NANOSECONDS
        if told.get("device_ids") or told.get("output_device", -1) >= 0:
            return float(exposed * num_steps)
        total = exposed * (told.get("iteration", 0) + is_last)
        before, self._totals[key] = self._totals.get(key, 0.0), total
        return float(max(total - before, 0.0))
