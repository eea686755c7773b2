"""Setting the hooks up in a process, and what happens when it forks or ends."""

import atexit
import os
import sys
from functools import partial
from typing import Any

from . import imports
from .hooks import habits, loading, logging, network, saving, training
from .observer import Observer
from .order import Order, order_for, read_order
from .pulse import start_pulse, whereabouts


def start(run: str) -> None:
    order = read_order() or (order_for(run) if run else None)
    if order is None or getattr(sys, "_paceline_is_observing", False):
        return
    sys._paceline_is_observing = True  # type: ignore[attr-defined]
    state: list[Any] = [Observer(order)]
    start_pulse(order.pulse_directory, order.run, lambda: whereabouts(state[0]))
    os.register_at_fork(after_in_child=partial(_start_anew, state, order))
    atexit.register(_finish, state)
    _watch_hard_exit(state)
    imports.install({name: partial(_watch_all, state, name) for name in _WATCHES | _HABITS})


def _watch_all(state: list[Any], name: str, module: Any) -> None:
    for watches in (_WATCHES, _HABITS):
        if name in watches:
            watches[name](state, module)


def _start_anew(state: list[Any], order: Order) -> None:
    """A forked process may train or may only load data: it is not the one that it was made from."""
    state[0] = Observer(order)


def _finish(state: list[Any]) -> None:
    kind = getattr(sys, "last_type", None)  # of an exception that nobody caught
    reason = "finished" if kind is None else "failed"
    if kind is not None and issubclass(kind, KeyboardInterrupt):
        reason = "stopped"
    state[0].finish(reason)


def _watch_hard_exit(state: list[Any]) -> None:
    """`os._exit` runs no exit handlers, and forked processes of multiprocessing end with it."""
    original = os._exit

    def _exit(status: int) -> Any:
        state[0].finish("failed" if status else "finished")
        original(status)

    os._exit = _exit


def _method(owner: str, method: str, argument: str) -> Any:
    return partial(logging.watch_method, owner=owner, method=method, argument=argument)


_LIGHTNING = "pytorch.trainer.connectors.logger_connector.logger_connector"
_WATCHES: dict[str, Any] = {
    "torch": training.watch_tensor,
    "torch.optim.optimizer": training.watch_optimizers,
    "torch.nn.utils.clip_grad": training.watch_clipping,
    "torch.amp.grad_scaler": training.watch_scaling,
    "torch.amp.autocast_mode": training.watch_autocast,
    "torch.nn.modules.module": training.watch_modes,
    "torch.utils.data.dataloader": loading.watch_loaders,
    "torch.serialization": saving.watch_torch_save,
    "safetensors.torch": saving.watch_safetensors,
    "lightning.fabric.utilities.cloud_io": saving.watch_lightning,
    "lightning_fabric.utilities.cloud_io": saving.watch_lightning,
    "torch.distributed.checkpoint.state_dict_saver": saving.watch_distributed_checkpoint,
    "torch.distributed.distributed_c10d": network.watch_collectives,
    "torch.nn.parallel.distributed": network.watch_ddp,
    "torch.utils.tensorboard.writer": logging.watch_writer,
    "tensorboardX.writer": logging.watch_writer,
    "mlflow.tracking.fluent": logging.watch_mlflow,
    "mlflow.tracking.client": logging.watch_mlflow_client,
    "wandb.sdk.wandb_run": _method("Run", "log", "data"),
    "trackio.run": _method("Run", "log", "metrics"),
    "transformers.trainer": _method("Trainer", "log", "logs"),
    f"lightning.{_LIGHTNING}": _method("_LoggerConnector", "log_metrics", "metrics"),
    f"pytorch_lightning.{_LIGHTNING.removeprefix('pytorch.')}": _method(
        "_LoggerConnector", "log_metrics", "metrics"
    ),
    "accelerate.accelerator": _method("Accelerator", "log", "values"),
}


_HABITS: dict[str, Any] = {
    "torch": habits.watch_reads,
    "torch.utils.data.dataloader": habits.watch_made_loaders,
    "torch.utils.data.distributed": habits.watch_sampler,
    "torch.optim.lr_scheduler": habits.watch_schedulers,
    "torch.amp.grad_scaler": habits.watch_scaler,
    "torch.serialization": habits.watch_saved,
    "torch.nn.parallel.distributed": habits.watch_networks,
}
