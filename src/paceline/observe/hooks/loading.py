"""DataLoader: when a batch is asked for, and when it is there."""

import sys
import weakref
from threading import get_ident
from typing import Any

from ..observer import Loader
from . import wrap

State = Any


def watch_loaders(state: State, module: Any) -> None:
    """`torch.utils.data.dataloader`."""
    known: Any = weakref.WeakKeyDictionary()
    module._BaseDataLoaderIter._paceline_loader = None
    wrap(module.DataLoader, "__iter__", lambda original: _iter(state, original, known))
    wrap(module._BaseDataLoaderIter, "__next__", lambda original: _next(state, original))


def _iter(state: State, original: Any, known: Any) -> Any:
    def iterate(self: Any) -> Any:
        observer = state[0]
        if not observer.here():
            return original(self)
        loader = _loader_of(self, known)
        observer.begin_pass(loader)
        observer.pass_begins()
        iterator = None
        try:
            iterator = original(self)
            return iterator
        finally:
            observer.made_pass(loader)
            observer.pass_made(self, loader)
            _remember(iterator, loader)

    return iterate


def _remember(iterator: Any, loader: Loader) -> None:
    try:
        iterator._paceline_loader = loader
    except AttributeError:
        return


def _loader_of(loader: Any, known: Any) -> Loader:
    try:
        found = known.get(loader)
        if found is None:
            found = known[loader] = Loader(_facts(loader), _length(loader))
    except Exception:
        found = Loader({}, None)
    return found  # type: ignore[no-any-return]


def _facts(loader: Any) -> dict[str, Any]:
    names = {
        "workers": "num_workers",
        "batch_size": "batch_size",
        "prefetch": "prefetch_factor",
        "pinned": "pin_memory",
        "persistent": "persistent_workers",
    }
    found = {name: getattr(loader, attribute, None) for name, attribute in names.items()}
    if found["batch_size"] is None:  # frameworks share a batch sampler out
        found["batch_size"] = getattr(getattr(loader, "batch_sampler", None), "batch_size", None)
    found["sampler"] = type(getattr(loader, "sampler", None)).__name__
    found["dataset"] = type(getattr(loader, "dataset", None)).__name__
    found["num_batches"] = _length(loader)
    return {name: value for name, value in found.items() if value is not None}


def _length(loader: Any) -> int | None:
    """Of an IterableDataset only where it is sized; asking torch to count one makes it warn."""
    if not hasattr(type(getattr(loader, "dataset", None)), "__len__"):
        return None
    try:
        return len(loader)
    except Exception:
        return None


def _next(state: State, original: Any) -> Any:
    is_grad_enabled = sys.modules["torch"].is_grad_enabled

    def take_next(self: Any) -> Any:
        observer, loader = state[0], self._paceline_loader
        if loader is None or not observer.is_watching or get_ident() != observer.thread:
            return original(self)
        try:
            if observer.may_step_unseen:
                observer.catch_up()
            observer.times.ask(loader.is_training, is_grad_enabled())
        except Exception as error:
            observer.give_up(error)
        try:
            batch = original(self)
        except StopIteration:
            observer.end_pass(loader)
            raise
        observer.got(loader, batch)
        return batch

    return take_next
