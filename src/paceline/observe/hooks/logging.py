"""Scores that a script gives to TensorBoard, W&B, trackio, MLflow, or a framework's own log."""

from typing import Any

from . import wrap

State = Any


def watch_writer(state: State, module: Any) -> None:
    """`SummaryWriter` of torch.utils.tensorboard and of tensorboardX."""

    def make_one(original: Any) -> Any:
        def add_scalar(self: Any, tag: Any, scalar_value: Any, *rest: Any, **options: Any) -> Any:
            if state[0].is_watching:
                state[0].scored({tag: scalar_value})
            return original(self, tag, scalar_value, *rest, **options)

        return add_scalar

    def make_many(original: Any) -> Any:
        def add_scalars(self: Any, main_tag: Any, values: Any, *rest: Any, **options: Any) -> Any:
            if state[0].is_watching:
                state[0].scored({f"{main_tag}/{name}": value for name, value in values.items()})
            return original(self, main_tag, values, *rest, **options)

        return add_scalars

    wrap(module.SummaryWriter, "add_scalar", make_one)
    wrap(module.SummaryWriter, "add_scalars", make_many)


def of_dictionary(place: int, name: str) -> Any:
    """A hook for a function or method that is given scores as a dictionary."""

    def make(state: State) -> Any:
        def make_hook(original: Any) -> Any:
            def log(*arguments: Any, **options: Any) -> Any:
                values = options.get(name, arguments[place] if len(arguments) > place else None)
                if isinstance(values, dict) and state[0].is_watching:
                    state[0].scored(dict(values))
                return original(*arguments, **options)

            return log

        return make_hook

    return make


def watch_method(state: State, module: Any, owner: str, method: str, argument: str) -> None:
    """`owner.method(self, argument={...})` of a module."""
    wrap(getattr(module, owner), method, of_dictionary(1, argument)(state))


def watch_mlflow_client(state: State, module: Any) -> None:
    """`mlflow.tracking.client`, which scripts use that name their run themselves."""

    def make(original: Any) -> Any:
        def log_metric(
            self: Any, run_id: Any, key: Any, value: Any, *rest: Any, **more: Any
        ) -> Any:
            if state[0].is_watching:
                state[0].scored({key: value})
            return original(self, run_id, key, value, *rest, **more)

        return log_metric

    wrap(module.MlflowClient, "log_metric", make)


def watch_mlflow(state: State, module: Any) -> None:
    """`mlflow.tracking.fluent`, before mlflow passes its functions on."""

    def make_one(original: Any) -> Any:
        def log_metric(key: Any, value: Any, *rest: Any, **options: Any) -> Any:
            if state[0].is_watching:
                state[0].scored({key: value})
            return original(key, value, *rest, **options)

        return log_metric

    wrap(module, "log_metric", make_one)
    wrap(module, "log_metrics", of_dictionary(0, "metrics")(state))
