"""Backward, the optimizer's step, clipping, loss scaling, train and eval mode."""

import sys
from threading import get_ident
from typing import Any

from .. import compiled
from . import wrap

State = Any
"""A one-element list with the observer of this process; a fork replaces it."""


def watch_tensor(state: State, torch: Any) -> None:
    """Of `torch` itself, when all of it is there. A tensor's own `backward` calls autograd's."""
    wrap(torch.autograd, "backward", lambda original: _backward(state, original))
    _watch_kept_tensors(state, torch.autograd.graph.saved_tensors_hooks)


def _watch_kept_tensors(state: State, hooks: Any) -> None:
    """Checkpointing and offloading: whoever looks at a kept tensor computes or moves it."""

    def make(original: Any) -> Any:
        def __enter__(self: Any) -> Any:  # noqa: N807
            if not compiled.is_compiling():
                state[0].keeps_tensors_itself = True
            return original(self)

        return __enter__

    wrap(hooks, "__enter__", make)


def _backward(state: State, original: Any) -> Any:
    def backward(tensors: Any, *arguments: Any, **options: Any) -> Any:
        if compiled.is_compiling():
            return original(tensors, *arguments, **options)
        observer = state[0]
        times = observer.times
        if not observer.is_watching or get_ident() != observer.thread or times.is_in_backward:
            return original(tensors, *arguments, **options)
        observer.begin_backward(tensors)
        try:
            return original(tensors, *arguments, **options)
        finally:
            try:
                times.end_backward()
            except Exception as error:
                observer.give_up(error)

    return backward


def watch_optimizers(state: State, module: Any) -> None:
    """`torch.optim.optimizer`: hooks that torch offers for all optimizers."""

    def before(optimizer: Any, arguments: Any, options: Any) -> None:
        if not compiled.is_compiling():
            observer = state[0]
            if observer.is_watching:
                observer.begin_step(optimizer)

    def after(optimizer: Any, arguments: Any, options: Any) -> None:
        if not compiled.is_compiling():
            observer = state[0]
            if observer.is_watching:
                observer.end_step(optimizer)

    module.register_optimizer_step_pre_hook(before)
    module.register_optimizer_step_post_hook(after)
    wrap(module.Optimizer, "__init__", lambda original: _made(state, original))


def _made(state: State, original: Any) -> Any:
    def init(self: Any, *arguments: Any, **options: Any) -> None:
        original(self, *arguments, **options)
        if state[0].here():
            state[0].made_optimizer(self)

    return init


def watch_clipping(state: State, module: Any) -> None:
    """`torch.nn.utils.clip_grad`."""

    def make(original: Any) -> Any:
        def clip_grad_norm_(*arguments: Any, **options: Any) -> Any:
            norm = original(*arguments, **options)
            if not compiled.is_compiling():
                observer = state[0]
                recorder = observer.recorder
                if recorder is not None and observer.is_watching and get_ident() == observer.thread:
                    recorder.gradient_norm = norm
            return norm

        return clip_grad_norm_

    wrap(module, "clip_grad_norm_", make)
    utils = sys.modules.get("torch.nn.utils")  # where a notebook had it already
    if utils is not None and hasattr(utils, "clip_grad_norm_"):
        utils.clip_grad_norm_ = module.clip_grad_norm_  # type: ignore[attr-defined]


def watch_scaling(state: State, module: Any) -> None:
    """`torch.amp.grad_scaler`: the loss is what was given, not what backward is called on."""

    def make(original: Any) -> Any:
        def scale(self: Any, outputs: Any) -> Any:
            scaled = original(self, outputs)
            if compiled.is_compiling() or scaled is outputs:
                return scaled
            if hasattr(scaled, "backward") and state[0].here():
                scaled._paceline_unscaled = outputs.detach()
                state[0].scales_losses = True
            return scaled

        return scale

    wrap(module.GradScaler, "scale", make)


def watch_autocast(state: State, module: Any) -> None:
    """`torch.amp.autocast_mode`: which precision the script asks for, when it asks."""

    def make(original: Any) -> Any:
        def init(self: Any, *arguments: Any, **options: Any) -> None:
            original(self, *arguments, **options)
            if not compiled.is_compiling() and getattr(self, "_enabled", False):
                state[0].autocast = str(getattr(self, "fast_dtype", ""))

        return init

    wrap(module.autocast, "__init__", make)


def watch_modes(state: State, module: Any) -> None:
    """`torch.nn.modules.module`: only that a network is told to train or to be evaluated."""

    def make_eval(original: Any) -> Any:
        def eval(self: Any) -> Any:
            if not compiled.is_compiling() and state[0].here():
                state[0].times.eval_mode()
            return original(self)

        return eval

    def make_train(original: Any) -> Any:
        def train(self: Any, mode: bool = True) -> Any:
            if mode and not compiled.is_compiling() and state[0].here():
                state[0].times.train_mode()
            return original(self, mode)

        return train

    wrap(module.Module, "eval", make_eval)
    wrap(module.Module, "train", make_train)
