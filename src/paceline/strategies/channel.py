"""One end of a connection between two processes: short JSON messages and plain tensors.

Underneath is a process group of two (Gloo), which moves tensors at the speed of the wire and dies
alone: when one worker is gone, nobody else's connection notices. Nothing is ever unpickled.
"""

import json
from collections.abc import Sequence
from datetime import timedelta
from typing import Any

import torch
from torch.distributed import (  # type: ignore[attr-defined]
    PrefixStore,
    ProcessGroupGloo,
    Store,
)

Message = dict[str, Any]

_FRAME_BYTES = 2048
"""Of a message that is sent in one piece; a longer one sends its rest after it."""
_LENGTH_BYTES = 4
_MOST_BYTES = 256_000_000
_FOREVER = timedelta(days=7)
"""Who waits for a worker cannot know how long it computes; others notice when it is gone."""


SHORT_BYTES = _FRAME_BYTES - _LENGTH_BYTES
"""A message of no more is taken from anybody, before it is known who it is."""


class ChannelLostError(Exception):
    """The other side is gone, or has never come."""


class Channel:
    """Not for two threads at once in the same direction."""

    def __init__(self, store: Store, name: str, side: int, interface: str, seconds: float) -> None:
        """`side` is 0 or 1, another for each of the two; returns when the other one is there."""
        self.name = name
        self._other = 1 - side
        gloo: Any = ProcessGroupGloo
        options = gloo._Options()
        options._devices = [gloo.create_device(interface=interface)]
        options._threads = 1
        options._timeout = timedelta(seconds=seconds)
        try:
            self._group = gloo(PrefixStore(name, store), side, 2, options)
        except RuntimeError as error:
            raise ChannelLostError(f"{name}: {_first_line(error)}") from error
        self._frame = torch.zeros(_FRAME_BYTES, dtype=torch.uint8)
        self._answer = torch.zeros(_FRAME_BYTES, dtype=torch.uint8)
        self.sent_bytes = self.received_bytes = 0
        """Of tensors."""

    def send(self, message: Message) -> None:
        data = json.dumps(message).encode()
        whole = len(data).to_bytes(_LENGTH_BYTES, "big") + data
        first, rest = whole[:_FRAME_BYTES], whole[_FRAME_BYTES:]
        self._frame[: len(first)] = torch.frombuffer(bytearray(first), dtype=torch.uint8)
        self._send_now(self._frame)
        if rest:
            self._send_now(_as_tensor(rest))

    def receive(self, most_bytes: int = _MOST_BYTES) -> Message:
        self._receive_now(self._answer)
        whole = self._answer.numpy().tobytes()
        length = int.from_bytes(whole[:_LENGTH_BYTES], "big")
        data = whole[_LENGTH_BYTES : _LENGTH_BYTES + length]
        if length > most_bytes:
            raise ChannelLostError(f"{self.name}: a message of {length} bytes is none of ours")
        if length > len(data):
            rest = torch.empty(length - len(data), dtype=torch.uint8)
            self._receive_now(rest)
            data += rest.numpy().tobytes()
        try:
            message = json.loads(data)
        except ValueError as error:
            raise ChannelLostError(f"{self.name}: what came is no message ({error})") from error
        if not isinstance(message, dict):
            raise ChannelLostError(f"{self.name}: what came is no message")
        return message

    def ask(self, message: Message) -> Message:
        self.send(message)
        return self.receive()

    def send_tensor(self, tensor: torch.Tensor) -> None:
        self.wait_for(self.begin_send(tensor))

    def receive_into(self, tensor: torch.Tensor) -> None:
        self.wait_for(self.begin_receive(tensor))

    def begin_send(self, tensor: torch.Tensor) -> Any:
        """What `wait_for` takes; several channels move their tensors at the same time."""
        if not tensor.numel():
            return None
        self.sent_bytes += tensor.numel() * tensor.element_size()
        return self._begin_send(tensor)

    def begin_receive(self, tensor: torch.Tensor) -> Any:
        if not tensor.numel():
            return None
        self.received_bytes += tensor.numel() * tensor.element_size()
        return self._begin_receive(tensor)

    def wait_for(self, work: Any) -> None:
        if work is not None:
            self._wait(work)

    def _send_now(self, tensor: torch.Tensor) -> None:
        self._wait(self._begin_send(tensor))

    def _receive_now(self, tensor: torch.Tensor) -> None:
        self._wait(self._begin_receive(tensor))

    def _begin_send(self, tensor: torch.Tensor) -> Any:
        return self._begin(lambda: self._group.send([tensor], self._other, 0))

    def _begin_receive(self, tensor: torch.Tensor) -> Any:
        return self._begin(lambda: self._group.recv([tensor], self._other, 0))

    def _begin(self, begin: Any) -> Any:
        """A connection that is known to be gone refuses at once."""
        try:
            return begin()
        except RuntimeError as error:
            raise ChannelLostError(f"{self.name}: {_first_line(error)}") from error

    def _wait(self, work: Any) -> None:
        try:
            work.wait(_FOREVER)
        except RuntimeError as error:
            raise ChannelLostError(f"{self.name}: {_first_line(error)}") from error


def name_of_type(dtype: torch.dtype) -> str:
    """As it stands in a message."""
    return str(dtype).removeprefix("torch.")


def type_named(name: str) -> torch.dtype:
    found = getattr(torch, name, None)
    if not isinstance(found, torch.dtype):
        raise ChannelLostError(f"'{name}' is no type of numbers")
    return found


def send_all(channels: Sequence[Channel], tensors: Sequence[torch.Tensor]) -> None:
    """One tensor over each channel, all at the same time."""
    begun = [channel.begin_send(each) for channel, each in zip(channels, tensors, strict=True)]
    for channel, work in zip(channels, begun, strict=True):
        channel.wait_for(work)


def _as_tensor(data: bytes) -> torch.Tensor:
    return torch.frombuffer(bytearray(data), dtype=torch.uint8)


def _first_line(error: Exception) -> str:
    """Gloo's messages begin with the place in its own source, and end with advice."""
    line = str(error).partition("\n")[0].partition(". This is typically")[0]
    return line.partition("] ")[2] or line
