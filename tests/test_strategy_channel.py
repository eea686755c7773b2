"""The connection between two processes of a run with roles, when one of them is gone."""

import multiprocessing
import os
import time
from pathlib import Path
from typing import Any

import pytest
import torch
from torch.distributed import FileStore  # type: ignore[attr-defined]

from paceline.strategies.channel import Channel, ChannelLostError


def end_of(folder: Path, side: int) -> Channel:
    return Channel(FileStore(str(folder / "store"), 2), "a pair", side, "lo", seconds=20)


def take_one_message_and_die(folder: Path) -> None:
    end_of(folder, 1).receive()
    os._exit(0)


def send(channel: Channel) -> None:
    channel.send({"ask": "work"})


def receive(channel: Channel) -> None:
    channel.receive()


def send_tensor(channel: Channel) -> None:
    channel.send_tensor(torch.zeros(4))


@pytest.mark.parametrize("use", [send, receive, send_tensor])
def test_whatever_is_tried_says_that_the_other_side_is_gone_however_often(
    use: Any, tmp_path: Path
) -> None:
    context = multiprocessing.get_context("spawn")
    other = context.Process(target=take_one_message_and_die, args=(tmp_path,), daemon=True)
    other.start()
    here = end_of(tmp_path, 0)
    here.send({"ask": "work"})
    other.join()
    time.sleep(0.5)  # so that the connection knows: it then refuses before anything begins
    for _ in range(3):
        with pytest.raises(ChannelLostError, match="a pair"):
            use(here)
            use(here)
