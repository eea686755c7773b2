"""Who is who with parameter servers, and what is refused before anything starts."""

import pytest

from paceline import recipe as recipes
from paceline.errors import UserError
from paceline.settings import Recipe
from paceline.strategies.roles import Roles, default_members, make_roles, parse_roles
from tests.conftest import CommandLine

SERVERS = "strategy=parameter-server"


def recipe_with(*settings: str) -> Recipe:
    return recipes.load("cifar10-tiny", [SERVERS, *settings])


def test_the_chief_comes_first_then_workers_then_servers() -> None:
    assert parse_roles("server=2, worker=1,chief=1") == ("chief", "worker", "server", "server")
    assert parse_roles("chief+server=1,worker=2") == ("chief+server", "worker", "worker")


def test_the_words_of_tensorflow_are_understood() -> None:
    assert parse_roles("master=1,worker=1,ps=1") == ("chief", "worker", "server")


def test_the_chief_trains_unless_it_is_told_not_to() -> None:
    assert make_roles(recipe_with(), parse_roles("chief,worker=2,server")).trainers == [0, 1, 2]
    spared = recipe_with("strategy.chief_trains=false")
    assert make_roles(spared, parse_roles("chief,worker=2,server")).trainers == [1, 2]


def test_names_are_those_that_people_use() -> None:
    roles = Roles(("chief+server", "worker", "worker", "server"))
    names = [roles.name_of(rank) for rank in range(roles.size)]
    assert names == ["chief and server 0", "worker 0", "worker 1", "server 1"]
    assert [roles.is_replaceable(rank) for rank in range(4)] == [False, True, True, False]


def test_so_many_trainers_and_one_server_are_the_default() -> None:
    assert default_members(3, chief_trains=True) == ("chief", "worker", "worker", "server")
    assert default_members(1, chief_trains=False) == ("chief", "worker", "server")


@pytest.mark.parametrize(
    ("settings", "roles", "what", "fix"),
    [
        ([], "chief=1,worker=3,server=0", "name no server", "chief+server=1"),
        ([], "worker=3,server=1", "1 chief, and the roles name 0", "chief=1"),
        ([], "chief=2,server=1", "1 chief, and the roles name 2", "chief=1"),
        ([], "chief=1,boss=1", "no role 'boss'", "chief, worker and server"),
        ([], "chief=1,worker=many", "'worker=many'", "chief=1,worker=3,server=2"),
        (["strategy.chief_trains=false"], "chief=1,server=1", "nobody would train", "worker=1"),
        ([], "chief=1,worker=4,server=1", "4 micro-batches, too few for 5", "batch.micro"),
        (["reduce=powersgd"], "chief,worker,server", "a way of all-reduce", "fp16"),
        (["strategy.backup=2"], "chief,worker,server", "strategy.backup is 2", "at most 1"),
        (["strategy.backup=1"], "chief,worker=3,server", "4 micro-batches cannot", "96 or 192"),
        (
            ["batch.global=null", "batch.per_device=64", "batch.micro=32"],
            "chief=1,worker=1,server=1",
            "all workers share one global batch",
            "batch.global=128 batch.per_device=null batch.micro=32",
        ),
    ],
)
def test_roles_that_do_not_add_up_are_refused(
    settings: list[str], roles: str, what: str, fix: str
) -> None:
    with pytest.raises(UserError) as refused:
        make_roles(recipe_with(*settings), parse_roles(roles))
    assert what in refused.value.what
    assert fix in refused.value.fix


@pytest.mark.parametrize(
    ("settings", "problem"),
    [
        (["strategy.mode=async"], "mode=async is one of strategy=parameter-server"),
        ([SERVERS, "strategy.mode=async", "strategy.backup=1"], "backup workers are for mode=sync"),
        ([SERVERS, "strategy.staleness=3"], "a limit on staleness is for mode=bounded"),
    ],
)
def test_settings_of_another_mode_are_refused(settings: list[str], problem: str) -> None:
    with pytest.raises(UserError, match=problem):
        recipes.load("cifar10-tiny", settings)


def test_roles_without_servers_in_the_strategy_are_refused(paceline: CommandLine) -> None:
    words = paceline.training("runs/a", "steps=1")
    result = paceline(*words, "--roles", "chief=1,worker=1,server=1")
    assert result.returncode == 2
    assert "this recipe's strategy is all-reduce" in result.stderr
    assert not (paceline.cwd / "runs/a").exists()
