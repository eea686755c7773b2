"""What the doctor makes of what it found; plain data in, rows of a table out."""

from typing import Any

import pytest

from paceline.doctor import files as doctor_files
from paceline.doctor import hosts as doctor_hosts
from paceline.doctor import network as doctor_network
from paceline.doctor.examination import Diagnosis, render, rounds
from paceline.doctor.rows import Row, merged
from paceline.hosts.file import Host
from paceline.settings import ReduceSettings

HERE = {"python": "3.11.7", "torch": "2.13.0", "paceline": "0.1.0", "code": "abc"}


def facts(**changes: Any) -> dict[str, Any]:
    usual: dict[str, Any] = {
        **HERE,
        "user": "me",
        "hostname": "h",
        "executable": "/usr/bin/python3",
        "num_cores": 8,
        "gpus": [],
        "addresses": {"127.0.0.1": "lo", "10.0.0.1": "eth0"},
        "data": None,
        "torch_import": None,
    }
    return {**usual, **changes}


def failing(rows: list[Row]) -> dict[str, Row]:
    return {row.where: row for row in rows if row.state == "fail"}


def test_equal_hosts_get_one_row_per_check() -> None:
    rows = doctor_hosts.judge_versions({"a": facts(), "b": facts()}, HERE)
    assert [(row.where, row.what, row.state) for row in rows] == [
        ("all 2 hosts", "python", "ok"),
        ("all 2 hosts", "torch", "ok"),
        ("all 2 hosts", "paceline", "ok"),
    ]


def test_the_host_that_differs_is_the_one_named() -> None:
    found = {"a": facts(), "b": facts(python="3.12.1"), "c": facts()}
    bad = failing(doctor_hosts.judge_versions(found, HERE))
    assert set(bad) == {"b"}
    assert "3.12.1" in bad["b"].found and "the others have 3.11" in bad["b"].remedy


def test_between_two_different_hosts_this_machine_decides() -> None:
    found = {"a": facts(torch="2.12.0"), "b": facts(torch="2.13.0")}
    assert set(failing(doctor_hosts.judge_versions(found, HERE))) == {"a"}


def test_a_python_too_old_is_told_even_if_all_have_it() -> None:
    found = {"a": facts(python="3.9.2"), "b": facts(python="3.9.2")}
    bad = failing(doctor_hosts.judge_versions(found, HERE))
    assert set(bad) == {"a", "b"} and "3.11 or newer" in bad["a"].remedy


def test_missing_or_broken_torch_and_other_code_have_remedies() -> None:
    found = {
        "a": facts(torch=None),
        "b": facts(torch_import={"error": "libcudart.so not found"}),
        "c": facts(code="def"),
        "d": facts(code=None, paceline=None),
    }
    bad = failing(doctor_hosts.judge_versions(found, HERE))
    assert "has no torch" in bad["a"].found
    assert "libcudart" in bad["b"].found
    assert "other code" in bad["c"].found and "hosts push" in bad["c"].remedy
    assert "has no Paceline" in bad["d"].found


def test_more_processes_than_gpus_fail_and_unequal_hosts_warn() -> None:
    found = {
        "a": facts(gpus=["A100"]),
        "b": facts(gpus=["A100", "A100"]),
        "c": facts(gpus=["A100"]),
    }
    hosts = [Host(name, name, name, devices=2) for name in found]
    rows = doctor_hosts.judge_devices(found, hosts)
    assert set(failing(rows)) == {"a", "c"}
    assert [row.where for row in rows if row.state == "warn"] == ["b"]


def test_clocks_are_compared_with_the_middle_one() -> None:
    rows = doctor_hosts.judge_clocks({"a": (0.0, 0.001), "b": (90.0, 0.001), "c": (0.002, 0.001)})
    assert [(row.where, row.state) for row in rows] == [("b", "fail")]
    assert "1 min 30 s ahead" in rows[0].found and "set-ntp" in rows[0].remedy


def test_a_clock_is_not_blamed_for_a_slow_answer() -> None:
    rows = doctor_hosts.judge_clocks({"a": (0.0, 0.001), "b": (0.6, 0.6), "c": (0.0, 0.001)})
    assert [row.state for row in rows] == ["ok"]


def test_a_clock_a_little_wrong_is_a_warning() -> None:
    rows = doctor_hosts.judge_clocks({"a": (0.0, 0.0), "b": (-0.3, 0.0), "c": (0.0, 0.0)})
    assert [(row.where, row.state) for row in rows] == [("b", "warn")]


def data(fingerprint: str | None, workload: str = "nmt") -> dict[str, Any]:
    if fingerprint is None:
        return facts(data={"path": "/d/nmt", "error": "not there"})
    found = {"path": "/d/nmt", "fingerprint": fingerprint, "workload": workload, "bytes": 5e9}
    return facts(data=found)


def test_missing_and_different_data_are_told_with_where_to_get_it() -> None:
    found = {"a": data("x"), "b": data(None), "c": data("y"), "d": data("x")}
    bad = failing(doctor_hosts.judge_data(found, "nmt"))
    assert set(bad) == {"b", "c"}
    assert "/d/nmt: not there" in bad["b"].found
    assert "on a: rsync -a /d/nmt/ HOST:/d/nmt/" in bad["b"].remedy
    assert "other data" in bad["c"].found


def test_data_of_another_workload_is_no_data() -> None:
    assert set(failing(doctor_hosts.judge_data({"a": data("x", "cifar10")}, "nmt"))) == {"a"}


def test_a_users_code_must_be_there_and_be_the_same() -> None:
    found = {
        "a": facts(project={"path": "/p/x", "different": []}),
        "b": facts(project={"path": None, "different": []}),
        "c": facts(project={"path": "/p/x", "different": ["task.py"]}),
    }
    rows = failing(doctor_files.judge_project(found))
    assert rows["b"].found == "the code of your task is not there"
    assert rows["c"].found == "/p/x: other code than here (task.py)"
    assert "hosts push" in rows["b"].remedy
    alike = {name: found["a"] for name in ("a", "b")}
    assert [row.state for row in doctor_files.judge_project(alike)] == ["ok"]
    assert doctor_files.judge_project({"a": facts()}) == []


def test_data_without_a_card_must_be_there_and_be_the_same() -> None:
    there = {"path": "/d/x.npz", "fingerprint": "f", "bytes": 10}
    found = {
        "a": facts(data=there),
        "b": facts(data=there),
        "c": facts(data={**there, "fingerprint": "g"}),
        "d": facts(data={"path": "/d/x.npz", "error": "not there"}),
    }
    rows = failing(doctor_hosts.judge_data(found, "task:Mine"))
    assert set(rows) == {"c", "d"}
    assert "paceline data" not in rows["d"].remedy


def test_names_must_mean_the_same_everywhere() -> None:
    resolved = {
        "a": {"ha": ["127.0.1.1"], "hb": ["10.0.0.2"], "hc": ["10.0.0.3"]},
        "b": {"ha": ["10.0.0.1"], "hb": ["127.0.1.1"], "hc": ["10.9.9.9"]},
        "c": {"ha": ["10.0.0.1"], "hb": ["127.0.1.1"], "hc": ["10.0.0.3"]},
        "d": {"ha": [], "hb": ["10.0.0.2"], "hc": ["10.0.0.3"]},
    }
    names = {"ha": "a", "hb": "b", "hc": "c"}
    rows = doctor_hosts.judge_names(resolved, names, needed={"ha"})
    told = {(row.where, row.state): row.found for row in rows}
    assert told == {
        ("d", "fail"): "a's name ha is not known there",
        ("c", "warn"): "b's name hb means 127.0.1.1 there, which is that host itself",
        ("b", "warn"): "c's name hc means 10.9.9.9 there, but 10.0.0.3 on the others",
    }
    assert "/etc/hosts of d: 10.0.0.1 ha" in rows[0].remedy


def test_copied_machines_with_one_name_are_noticed() -> None:
    rows = doctor_hosts.judge_host_names({"a": "ubuntu", "b": "ubuntu", "c": "c"})
    assert [(row.where, row.state) for row in rows] == [("a, b", "warn")]


def written(**changes: Any) -> dict[str, Any]:
    return {"path": "/data/runs", "free_bytes": 1e12, **changes}


@pytest.mark.parametrize(
    ("seen", "said", "states"),
    [
        ({"a": ["a", "b", "c"], "b": ["a", "b", "c"], "c": ["a", "b", "c"]}, "shared:", ["ok"]),
        ({"a": ["a"], "b": ["b"], "c": ["c"]}, "not shared", ["ok"]),
        ({"a": ["a", "b"], "b": ["a", "b"], "c": ["c"]}, "does not see what a, b wrote", ["fail"]),
    ],
)
def test_a_run_directory_is_one_for_all_or_one_for_each(
    seen: dict[str, list[str]], said: str, states: list[str]
) -> None:
    rows = doctor_hosts.judge_run({name: written() for name in seen}, seen, None)
    assert [row.state for row in rows] == states and said in rows[0].found


def test_room_is_needed_for_the_recipes_checkpoints() -> None:
    found = {"a": written(), "b": written(free_bytes=2e9)}
    rows = doctor_hosts.judge_run(found, {"a": ["a"], "b": ["b"]}, needed_bytes=3.6e9)
    bad = failing(rows)
    assert "2.0 GB free of 3.6 GB" in bad["b"].found and "keep_last" in bad["b"].remedy


def test_a_directory_that_cannot_be_written_is_told() -> None:
    found = {"a": written(error="Read-only file system"), "b": written()}
    bad = failing(doctor_hosts.judge_run(found, {"b": ["b"]}, None))
    assert "Read-only" in bad["a"].found


@pytest.mark.parametrize("interface", ["lo", "docker0", "br-12ab", "virbr0"])
def test_a_route_that_does_not_leave_the_host_is_refused(interface: str) -> None:
    rows = doctor_network.judge_interfaces({("a", "b"): interface, ("b", "a"): "eth0"})
    assert set(failing(rows)) == {"a -> b"} and interface in rows[0].found
    assert "private_address" in rows[0].remedy


def test_the_interface_most_routes_take_is_chosen() -> None:
    ways = {("a", "b"): "ib0", ("a", "c"): "ib0", ("a", "d"): "eth0", ("b", "a"): "docker0"}
    assert doctor_network.choose_interfaces(ways) == {"a": "ib0"}


def test_a_public_address_behind_nat_is_no_private_address() -> None:
    rows = doctor_network.judge_addresses({"a": facts()}, {"a": ["203.0.113.1"]})
    assert "203.0.113.1 is not an address of a itself" in rows[0].found
    assert "it has 10.0.0.1" in rows[0].remedy


def test_a_public_address_among_hosts_is_a_warning() -> None:
    found = {"a": facts(addresses={"8.8.8.8": "eth0"})}
    rows = doctor_network.judge_addresses(found, {"a": ["8.8.8.8"]})
    assert [(row.where, row.state) for row in rows] == [("a", "warn")]


def way(**changes: Any) -> dict[str, Any]:
    return {"interface": "eth0", "port": 40000, "round_trip_seconds": 1e-4, **changes}


def test_a_closed_port_names_the_host_that_nobody_reaches_and_the_narrow_rule() -> None:
    closed = {"interface": "eth0", "port": 40000, "error": "timed out"}
    reached = {("a", "b"): way(), ("b", "a"): way(), ("a", "c"): closed, ("b", "c"): closed}
    rows = doctor_network.judge_reach({**reached, ("c", "a"): way(), ("c", "b"): way()})
    assert [(row.where, row.state) for row in rows] == [("all others -> c", "fail")]
    assert "TCP port 40000" in rows[0].found and "group to itself" in rows[0].remedy


def test_hosts_far_apart_are_a_warning() -> None:
    reached = {("a", "b"): way(), ("b", "c"): way(round_trip_seconds=0.03)}
    rows = doctor_network.judge_reach(reached)
    assert [(row.where, row.state) for row in rows] == [("b -> c", "warn")]


def speeds(slow_host: str, slow: float) -> dict[tuple[str, str], dict[str, Any]]:
    ways = [(a, b) for a in "abcd" for b in "abcd" if a != b]
    return {way: {"bits_per_second": slow if slow_host in way else 9.4e8} for way in ways}


def test_a_slow_link_is_traced_to_its_host() -> None:
    rows = doctor_network.judge_speed(speeds("c", 9.5e7))
    assert [(row.where, row.state) for row in rows] == [("c", "warn")]
    assert "95 Mbit/s" in rows[0].found and "0.94 Gbit/s" in rows[0].found


def test_a_link_slow_in_one_direction_says_which() -> None:
    measured = {w: {"bits_per_second": 1e8 if w[0] == "c" else 9.4e8} for w in speeds("", 0.0)}
    rows = doctor_network.judge_speed(measured)
    assert [(row.where, row.state) for row in rows] == [("c", "warn")]
    assert "0.10 Gbit/s outwards" in rows[0].found


def test_one_disturbed_way_does_not_hide_a_slow_link() -> None:
    measured = {**speeds("c", 9.5e7), ("a", "b"): {"bits_per_second": 3e8}}
    rows = doctor_network.judge_speed(measured)
    assert [row.where for row in rows] == ["c", "a -> b"]


def test_a_slow_network_as_a_whole_is_a_warning() -> None:
    measured = {("a", "b"): {"bits_per_second": 9e7}, ("b", "a"): {"bits_per_second": 9.4e7}}
    assert [row.state for row in doctor_network.judge_speed(measured)] == ["warn"]


def test_one_slow_way_among_good_ones_is_shown_as_such() -> None:
    measured = {**speeds("", 0.0), ("a", "b"): {"bits_per_second": 1e8}}
    rows = doctor_network.judge_speed(measured)
    assert [(row.where, row.state) for row in rows] == [("a -> b", "warn")]


def test_the_sentence_knows_how_gradients_are_exchanged() -> None:
    measured = {("a", "b"): {"bits_per_second": 94e6}, ("b", "a"): {"bits_per_second": 95e6}}
    diloco = ReduceSettings(kind="diloco", every=40, bits=16)
    text = doctor_network.sentence(2, 243e6, measured, diloco)
    assert "reduce=diloco, 3.0 MB on average, will take 0.26 s of each step" in text
    assert "slower than one alone (a larger reduce.every, or a larger batch" in text
    fast = {("a", "b"): {"bits_per_second": 100e9}}
    assert "slower" not in doctor_network.sentence(2, 243e6, fast)


def test_the_sentence_says_what_the_slowest_link_costs_each_step() -> None:
    measured = {("a", "b"): {"bits_per_second": 9.4e8}, ("b", "a"): {"bits_per_second": 9.5e8}}
    text = doctor_network.sentence(4, 243e6, measured)
    assert text.startswith(
        "4 hosts at 0.94 Gbit/s: all-reduce of 243 MB will take 3.10 s of each step; where a host "
        "computes less than 1.03 s a step, these hosts are slower than one alone"
    )
    assert "reduce=auto" in text


def test_ways_measured_together_share_no_host() -> None:
    ways = [(a, b) for a in "abcdef" for b in "abcdef" if a != b]
    together = list(rounds(ways, one_by_one=False))
    assert sorted(way for chosen in together for way in chosen) == sorted(ways)
    for chosen in together:
        hosts = [host for way in chosen for host in way]
        assert len(hosts) == len(set(hosts))
    assert all(len(chosen) == 1 for chosen in rounds(ways, one_by_one=True))


def test_the_same_trouble_on_several_hosts_is_told_once() -> None:
    rows = merged(
        [Row("a", "data", "fail", "gone", "get it"), Row("b", "data", "fail", "gone", "get it")]
    )
    assert rows == [Row("a, b", "data", "fail", "gone", "get it")]


def test_the_table_puts_the_remedy_below_and_counts_at_the_end() -> None:
    rows = (Row("a", "clock", "fail", "1 h ahead", "set it"), Row("b", "login", "ok", "as me"))
    text = render(Diagnosis(rows, "", {}))
    assert text.splitlines() == [
        "fail  a  clock  1 h ahead",
        "                -> set it",
        "ok    b  login  as me",
        "",
        "1 failure",
    ]


def test_a_host_that_imports_torch_slowly_is_warned_of_with_the_path_and_a_remedy() -> None:
    tried = {"version": "2.6.0", "num_devices": 0, "path": "/shared/venv/torch"}
    found = {
        name: facts(torch_import={**tried, "seconds": seconds})
        for name, seconds in (("a", 2.0), ("b", 34.0))
    }
    rows = [row for row in doctor_hosts.judge_versions(found, HERE) if row.what == "import"]
    assert [(row.where, row.state) for row in rows] == [("b", "warn")]
    assert "34.0 s, from /shared/venv/torch" in rows[0].found
    assert "local disk" in rows[0].remedy
    rows = doctor_hosts.judge_versions({"a": found["a"]}, HERE)
    usual = next(row for row in rows if row.what == "import")
    assert usual.state == "ok" and "2.00 s" in usual.found
