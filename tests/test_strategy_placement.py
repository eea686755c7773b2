"""Roles on many hosts: as the user says, or placed for them."""

import pytest

from paceline import recipe as recipes
from paceline.errors import UserError
from paceline.strategies.placement import Placement, place

RECIPE = recipes.load("cifar10-tiny", ["strategy=parameter-server", "batch.micro=8"])
HOSTS = ("a", "b", "c")
ONE_EACH = dict.fromkeys(HOSTS, 1)


def placed(asked: str | None = None, **pinned: tuple[str, ...]) -> Placement:
    return place(RECIPE, HOSTS, ONE_EACH, asked, pinned)


def test_without_a_word_every_host_trains_and_serves() -> None:
    found = placed()
    assert found.in_words() == "a: chief=1, server=1; b: worker=1, server=1; c: worker=1, server=1"
    assert list(found.ranks_of("b")) == [2, 3]


def test_roles_that_are_asked_for_are_spread_over_hosts() -> None:
    found = placed("chief=1,worker=3,server=2")
    assert found.in_words() == "a: chief=1, worker=1; b: worker=1, server=1; c: worker=1, server=1"


def test_a_role_goes_to_the_host_that_it_names_and_the_chiefs_host_comes_first() -> None:
    found = placed("chief@c,worker@a=2,server@b")
    assert found.hosts == ("c", "a", "b")
    assert found.roles.by_rank == ("chief", "worker", "worker", "server")


def test_the_hosts_file_may_say_it_and_hosts_without_a_word_train() -> None:
    found = placed(b=("chief", "server"))
    assert found.hosts == ("b", "a", "c")
    assert found.roles.by_rank == ("chief", "server", "worker", "worker")


def test_when_the_host_of_the_chief_is_gone_another_one_decides() -> None:
    pinned = {"a": ("chief", "server"), "b": ("worker",), "c": ("worker",)}
    found = place(RECIPE, ("b", "c"), ONE_EACH, None, pinned)
    assert found.in_words() == "b: chief=1, server=1; c: worker=1"


def test_roles_on_a_host_that_is_lost_are_left_out_and_somebody_else_decides() -> None:
    asked = "chief@a,server@a,worker@b,worker@c"
    found = place(RECIPE, ("b", "c"), ONE_EACH, asked, {}, absent=("a",))
    assert found.in_words() == "b: chief=1, server=1; c: worker=1"


def test_hosts_that_are_lost_do_not_end_a_run_whose_batch_no_longer_divides() -> None:
    recipe = recipes.load("cifar10-tiny", ["strategy=parameter-server", "strategy.backup=1"])
    asked = "chief@a,worker@a,server@a,worker@b,worker@b,worker@c"
    with pytest.raises(UserError, match="shared evenly"):
        place(recipe, HOSTS, ONE_EACH, asked.replace("worker@a,", ""), {})
    found = place(recipe, ("a", "b"), ONE_EACH, asked, {}, absent=("c",))
    assert len(found.roles.trainers) == 4


@pytest.mark.parametrize(
    ("asked", "pinned", "problem"),
    [
        ("chief@x,worker=2,server", {}, "'x', which the hosts file does not name"),
        ("chief,worker,server", {"a": ("worker",)}, "both in the hosts file and with --roles"),
        ("worker=2,server", {}, "1 chief, and the roles name 0"),
    ],
)
def test_mistakes_are_refused(asked: str, pinned: dict[str, tuple[str, ...]], problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        placed(asked, **pinned)
