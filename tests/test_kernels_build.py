"""Kernels are built in a directory of the user's own, and whoever cannot have them is told why."""

import os
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from paceline.errors import UserError
from paceline.kernels import build
from paceline.tasks.cifar10.resnet import CifarResNet
from paceline.train.measure import kernels
from paceline.world import World

PROGRAM = "from paceline.kernels import build; print(build.problem('norm'))"
needs_kernel = pytest.mark.skipif(
    build.library("norm") is None, reason="there is no C compiler here"
)


def problem(**changes: str) -> str:
    """What a process with such an environment says; it must not fail."""
    environment = {name: value for name, value in {**os.environ, **changes}.items() if value}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM],
        env=environment,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def compiler(folder: Path, script: str) -> str:
    """A PATH with a compiler that does as the script says."""
    folder.mkdir()
    program = folder / "cc"
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(0o755)
    return str(folder)


@needs_kernel
def test_what_is_built_is_only_its_owners(tmp_path: Path) -> None:
    before = os.umask(0o002)
    try:
        assert problem(XDG_CACHE_HOME=str(tmp_path)) == "None"
    finally:
        os.umask(before)
    folder = tmp_path / "paceline" / "kernels"
    (library,) = folder.iterdir()
    assert folder.stat().st_mode & 0o777 == 0o700
    assert library.suffix == ".so" and library.stat().st_mode & 0o022 == 0


@needs_kernel
def test_that_kernels_are_compiled_is_said_before_it_takes_its_time(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    network, world = CifarResNet(8), World(0, 1, torch.device("cpu"))
    kernels.agree(network, world)
    assert "compiling" not in capsys.readouterr().err
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    assert build.is_to_be_compiled("norm")
    kernels.agree(network, world)  # they are loaded already, so nothing is built there
    assert capsys.readouterr().err.count("compiling kernels for this processor") == 1
    monkeypatch.setenv("PACELINE_KERNEL", "off")
    assert not build.is_to_be_compiled("norm")


@needs_kernel
def test_loading_a_kernel_leaves_the_arithmetic_of_its_process_alone() -> None:
    """Linked with -ffast-math, old compilers' libraries make all small numbers zero."""
    program = (
        "from paceline.kernels import build\n"
        "assert build.library('norm') is not None\n"
        "smallest = float.fromhex('0x1p-1074')\n"
        "assert smallest * 1.0 > 0.0"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


@needs_kernel
@pytest.mark.parametrize("mode", [0o777, 0o1777, 0o770])
def test_a_directory_that_others_can_write_to_is_refused(tmp_path: Path, mode: int) -> None:
    folder = tmp_path / "paceline" / "kernels"
    folder.mkdir(parents=True)
    folder.chmod(mode)
    told = problem(XDG_CACHE_HOME=str(tmp_path))
    assert f"{folder} can be written to by other users" in told and "XDG_CACHE_HOME" in told
    assert not list(folder.iterdir())


@needs_kernel
def test_a_library_that_others_can_write_to_is_refused(tmp_path: Path) -> None:
    assert problem(XDG_CACHE_HOME=str(tmp_path)) == "None"
    (library,) = (tmp_path / "paceline" / "kernels").iterdir()
    library.chmod(0o777)
    assert "can be written to by other users" in problem(XDG_CACHE_HOME=str(tmp_path))


@pytest.mark.skipif(os.getuid() != 0, reason="only root can give a directory away")
def test_a_directory_of_another_user_is_refused(tmp_path: Path) -> None:
    folder = tmp_path / "kernels"
    folder.mkdir(mode=0o700)
    os.chown(folder, 12345, 12345)
    with pytest.raises(UserError, match="belongs to another user"):
        build.make_private(folder)


def test_a_link_is_refused(tmp_path: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    (tmp_path / "kernels").symlink_to(tmp_path / "elsewhere")
    with pytest.raises(UserError, match="is a link"):
        build.make_private(tmp_path / "kernels")


@needs_kernel
def test_without_a_home_there_is_a_reason_and_no_traceback() -> None:
    told = problem(HOME="", XDG_CACHE_HOME="~nobody-has-this-name/cache")
    assert "the home directory is not known" in told and "set HOME" in told


@needs_kernel
def test_a_cache_that_cannot_be_written_is_a_reason(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    assert "cannot be built" in problem(XDG_CACHE_HOME=str(tmp_path / "file"))


def test_without_a_compiler_that_is_the_reason(tmp_path: Path) -> None:
    assert problem(PATH=str(tmp_path)) == "there is no C compiler (cc or gcc)"
    assert problem(PACELINE_KERNEL="off") == build.SWITCHED_OFF


def test_a_compiler_that_fails_is_quoted(tmp_path: Path) -> None:
    wrong = 'echo "In file included from norm.c:9:" >&2; echo "fatal error: math.h: no such" >&2'
    path = compiler(tmp_path / "bin", f'[ "$1" = --version ] && exit 0\n{wrong}; exit 1')
    told = problem(PATH=path, XDG_CACHE_HOME=str(tmp_path))
    assert told.endswith("cannot compile the kernel 'norm': fatal error: math.h: no such")
    assert not list((tmp_path / "paceline" / "kernels").iterdir())
