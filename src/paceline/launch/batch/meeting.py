"""Where the processes of a world that somebody else has started find each other.

torchrun and MASTER_ADDR say it; otherwise the first process chooses an address that the other hosts
reach, listens there, and says so in a file in the run directory.
"""

import json
import os
import socket
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from paceline.errors import UserError
from paceline.launch.batch.place import Place
from paceline.lifetime import process_started
from paceline.machine.interfaces import (
    LOOPBACK,
    address_of_interface,
    first_address_for_others,
    interface_of,
    interface_towards,
    leads_out,
    source_towards,
)
from paceline.record.schema import RunDirectory
from paceline.record.writer import write_file

_MEET_SECONDS = 90.0


@dataclass(frozen=True)
class Meeting:
    interface: str
    store: str | None = None
    """'tcp://address:port'; None where torchrun has one."""
    listener: socket.socket | None = None
    """In the first process: on which the store listens."""


@contextmanager
def meet(run: RunDirectory, place: Place, needs_store: bool = False) -> Iterator[Meeting]:
    """`needs_store`: torchrun's own, which listens on all addresses, will not do."""
    if place.size == 1:
        yield Meeting(LOOPBACK)
    elif place.source == "torchrun" and not needs_store:
        yield Meeting(_way_to(os.environ["MASTER_ADDR"], place))
    elif place.master is not None and place.source != "torchrun":
        yield _meeting_at(*place.master, place)
    else:
        with _meeting_file(run, place) as (address, port, listener):
            yield _settled(address, port, place, listener)


def _meeting_at(address: str, port: int, place: Place) -> Meeting:
    """The first process listens there, on that address alone where it is its own."""
    _wait_for_name(address)
    listener = None
    if place.rank == 0:
        try:
            listener = _listen(address, port)
        except OSError as error:
            raise UserError(
                f"process 0 cannot listen on {address} port {port}, where {place.source} says "
                f"that the processes meet: {error.strerror}",
                "that must be an address of process 0's host (MASTER_ADDR), and the port free "
                "(MASTER_PORT)",
            ) from error
    return _settled(address, port, place, listener)


def _wait_for_name(name: str) -> None:
    """The names of pods are known a little later than the pods begin."""
    until = time.monotonic() + _MEET_SECONDS
    while True:
        try:
            socket.getaddrinfo(name, None, type=socket.SOCK_STREAM)
            return
        except socket.gaierror as error:
            if time.monotonic() > until:
                raise UserError(
                    f"no address is known for {name}, where the processes meet: {error.strerror}",
                    "check that this host can look that name up",
                ) from error
        time.sleep(1.0)


def _settled(address: str, port: int, place: Place, listener: socket.socket | None) -> Meeting:
    return Meeting(_way_to(address, place), f"tcp://{address}:{port}", listener)


@contextmanager
def _meeting_file(
    run: RunDirectory, place: Place
) -> Iterator[tuple[str, int, socket.socket | None]]:
    path = run.path / f".meet-{place.file_name}"
    if place.rank > 0:
        address, port = _wait_for(path, place)
        yield address, port, None
        return
    address = own_address(place)
    listener = _listen(address, 0)
    port = listener.getsockname()[1]
    write_file(path, json.dumps({"address": address, "port": port, "time": time.time()}))
    try:
        yield address, port, listener
    finally:
        path.unlink(missing_ok=True)


def _listen(address: str, port: int) -> socket.socket:
    info = socket.getaddrinfo(address, port, type=socket.SOCK_STREAM)[0]
    listener = socket.socket(info[0])
    listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    listener.bind(info[4])
    listener.listen(1024)
    return listener


def _wait_for(path: Path, place: Place) -> tuple[str, int]:
    until, began = time.monotonic() + _MEET_SECONDS, process_started()
    while time.monotonic() < until:
        try:
            told = json.loads(path.read_text(encoding="utf-8"))
            if told["time"] > began - _MEET_SECONDS:  # not one that a killed job left behind
                return str(told["address"]), int(told["port"])
        except (OSError, ValueError, KeyError):
            pass
        time.sleep(0.1)
    raise UserError(
        f"process {place.rank} on {socket.gethostname()} waited {_MEET_SECONDS:.0f} s for {path}, "
        "where process 0 writes where to meet",
        "put --run on storage that all hosts share, or say where to meet: set MASTER_ADDR (an "
        "address of process 0's host) and MASTER_PORT for all processes (mpirun -x)",
    )


def own_address(place: Place) -> str:
    """The address of this host by which the other hosts of the job reach it."""
    if place.is_one_host:
        return "127.0.0.1"
    chosen = os.environ.get("GLOO_SOCKET_IFNAME")
    if chosen:
        return _address_of_chosen(chosen)
    for peer in place.other_hosts:
        source = source_towards(peer, socket.AF_INET)
        if source is not None and leads_out(interface_of(source) or LOOPBACK):
            return source
    address = first_address_for_others()
    if address is None:
        raise UserError(
            f"{socket.gethostname()} has no network address for other hosts", "see `ip addr`"
        )
    return address


def _address_of_chosen(interface: str) -> str:
    address = address_of_interface(interface)
    if address is None:
        raise UserError(
            f"GLOO_SOCKET_IFNAME={interface}, but {socket.gethostname()} has no such interface "
            "with an IPv4 address",
            "`ip addr` lists what there is",
        )
    return address


def _way_to(address: str, place: Place) -> str:
    """The interface that leads to where the processes meet."""
    return LOOPBACK if place.is_one_host else interface_towards(address) or LOOPBACK
