"""Hosts from what clouds and schedulers print."""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from paceline.errors import UserError
from paceline.hosts.file import load_hosts
from paceline.hosts.importing import expand_nodes, import_hosts

AWS = {
    "Reservations": [
        {
            "Instances": [
                {
                    "InstanceId": "i-1",
                    "State": {"Name": "running"},
                    "PublicIpAddress": "203.0.113.1",
                    "PrivateIpAddress": "10.0.0.1",
                    "KeyName": "lab",
                    "Tags": [{"Key": "Name", "Value": "train node"}],
                },
                {"InstanceId": "i-2", "State": {"Name": "terminated"}},
            ]
        },
        {
            "Instances": [
                {
                    "InstanceId": "i-3",
                    "State": {"Name": "running"},
                    "PublicDnsName": "ec2-3.example.com",
                    "PrivateIpAddress": "10.0.0.3",
                    "Tags": [{"Key": "Name", "Value": "train node"}],
                }
            ]
        },
    ]
}

GCLOUD = [
    {
        "name": "g1",
        "status": "RUNNING",
        "networkInterfaces": [
            {"networkIP": "10.128.0.2", "accessConfigs": [{"natIP": "198.51.100.2"}]}
        ],
    },
    {"name": "g2", "status": "TERMINATED", "networkInterfaces": [{"networkIP": "10.128.0.3"}]},
    {"name": "g3", "status": "RUNNING", "networkInterfaces": [{"networkIP": "10.128.0.4"}]},
]

IBM = [
    {
        "hostname": "v1",
        "primaryIpAddress": "192.0.2.1",
        "primaryBackendIpAddress": "10.1.0.1",
        "status": {"keyName": "ACTIVE"},
        "powerState": {"keyName": "RUNNING"},
    },
    {
        "hostname": "v2",
        "primaryIpAddress": "192.0.2.2",
        "primaryBackendIpAddress": "10.1.0.2",
        "status": {"keyName": "ACTIVE"},
        "powerState": {"keyName": "HALTED"},
    },
]


def imported(kind: str, text: Any, **shared: str) -> list[dict[str, Any]]:
    said = text if isinstance(text, str) else json.dumps(text)
    document = import_hosts(kind, said, shared, lambda _text: None)
    hosts: list[dict[str, Any]] = yaml.safe_load(document)["hosts"]
    return hosts


def test_aws_gives_running_instances_with_key_and_both_addresses() -> None:
    first, second = imported("aws", AWS)
    assert first == {
        "name": "train-node",
        "address": "203.0.113.1",
        "private_address": "10.0.0.1",
        "key": "~/.ssh/lab.pem",
    }
    assert (second["name"], second["address"]) == ("train-node-2", "ec2-3.example.com")


def test_gcloud_gives_running_instances_and_says_which_have_no_public_address() -> None:
    said: list[str] = []
    hosts = yaml.safe_load(import_hosts("gcloud", json.dumps(GCLOUD), {}, said.append))["hosts"]
    assert [(h["name"], h["address"]) for h in hosts] == [
        ("g1", "198.51.100.2"),
        ("g3", "10.128.0.4"),
    ]
    assert said == [
        "g3 has no public address; its private one is used, so a jump host may be needed"
    ]


def test_ibmcloud_gives_machines_whose_power_is_on() -> None:
    assert imported("ibmcloud", IBM) == [
        {"name": "v1", "address": "192.0.2.1", "private_address": "10.1.0.1"}
    ]


def test_plain_lines_have_user_port_and_private_address() -> None:
    text = "# mine\nubuntu@203.0.113.7:2222 10.0.0.7\n\nbox  # second\nme@[2001:db8::1]:22\n"
    assert imported("plain", text) == [
        {"name": "203.0.113.7", "address": "203.0.113.7", "user": "ubuntu", "port": 2222}
        | {"private_address": "10.0.0.7"},
        {"name": "box", "address": "box"},
        {"name": "2001-db8-1", "address": "2001:db8::1", "user": "me", "port": 22},
    ]


def test_an_mpi_host_file_gives_devices() -> None:
    assert imported("mpi", "a slots=4 max_slots=8\nb:2\nc\na slots=1\n") == [
        {"name": "a", "address": "a", "devices": 5},
        {"name": "b", "address": "b", "devices": 2},
        {"name": "c", "address": "c"},
    ]


@pytest.mark.parametrize(
    ("nodelist", "names"),
    [
        ("a[1-3,7]", "a1 a2 a3 a7"),
        ("gpu[08-11]", "gpu08 gpu09 gpu10 gpu11"),
        ("a,b[1-2],c", "a b1 b2 c"),
        ("r[1-2]n[3,5]x", "r1n3x r1n5x r2n3x r2n5x"),
        ("login", "login"),
    ],
)
def test_slurm_node_lists_are_expanded(nodelist: str, names: str) -> None:
    assert expand_nodes(nodelist) == names.split()


@pytest.mark.parametrize("nodelist", ["a[1-", "a[x]", "a[1-2]]", "a[]"])
def test_a_broken_node_list_is_refused(nodelist: str) -> None:
    with pytest.raises(UserError, match="node list"):
        expand_nodes(nodelist)


@pytest.mark.parametrize(
    ("kind", "text", "said"),
    [
        ("aws", "not json", "it is not JSON"),
        ("aws", "[]", "has no 'Reservations'"),
        ("aws", '{"Reservations": []}', "there is no instance"),
        ("gcloud", '{"name": "x"}', "not a list of instances"),
        ("gcloud", [GCLOUD[1]], "no instance is running; there are: g2 (TERMINATED)"),
        ("gcloud", [{"name": "x", "status": "RUNNING"}], "x has no address yet"),
        ("ibmcloud", [IBM[1]], "v2 (HALTED)"),
        ("plain", "a b c", "line 1 is not a host"),
        ("plain", "", "no host is listed"),
        ("mpi", "a slots=many", "line 1 has 'many' slots"),
        ("slurm", "  ", "no host is listed"),
    ],
)
def test_what_cannot_be_imported_is_explained(kind: str, text: Any, said: str) -> None:
    with pytest.raises(UserError) as caught:
        imported(kind, text)
    assert said in caught.value.what and caught.value.fix


def test_the_command_writes_a_file_that_loads(tmp_path: Path) -> None:
    (tmp_path / "instances.json").write_text(json.dumps(AWS), encoding="utf-8")
    made = _import("aws", str(tmp_path / "instances.json"), "--user", "ubuntu")
    assert made.returncode == 0, made.stderr
    (tmp_path / "hosts.yaml").write_text(made.stdout, encoding="utf-8")
    hosts = load_hosts(tmp_path / "hosts.yaml").hosts
    assert [host.user for host in hosts] == ["ubuntu", "ubuntu"]
    assert hosts[0].key == Path.home() / ".ssh/lab.pem"


def test_a_slurm_allocation_is_taken_from_the_environment() -> None:
    made = _import("slurm", SLURM_JOB_NODELIST="n[1-2]")
    assert [host["address"] for host in yaml.safe_load(made.stdout)["hosts"]] == ["n1", "n2"]


def _import(*words: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, "-m", "paceline.cli", "hosts", "import", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=60,
        stdin=subprocess.DEVNULL,
        env={**os.environ, **environment},
    )
