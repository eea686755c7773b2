"""What a rented machine is, what it costs, and that a report says so."""

import json
import time
from pathlib import Path

import pytest
import yaml

from paceline.cloud.quotas import quota_of
from paceline.hosts.importing import import_hosts
from paceline.machine.probe import machine_type
from paceline.report.answers.cost import cost
from paceline.report.facts.facts import Options
from paceline.report.own.run import read_run
from paceline.report.prices import ON_DEMAND, SPOT, Price, find_price, remember_price
from tests.stored_runs import plateaued


@pytest.mark.parametrize(
    ("instance_type", "spot", "code"),
    [
        ("g4dn.2xlarge", False, "L-DB2E81BA"),
        ("gr6.4xlarge", True, "L-3819A6DF"),
        ("p4d.24xlarge", True, "L-7212CCBC"),
        ("p5.48xlarge", True, "L-C4BD4855"),
        ("p5.48xlarge", False, "L-417A185B"),
        ("trn1.2xlarge", False, "L-2C3B7624"),
        ("t3.large", False, "L-1216C47A"),
        ("inf2.xlarge", False, "L-1945791B"),
        ("im4gn.large", False, "L-1216C47A"),
        ("hpc7a.96xlarge", False, "L-F7808C92"),
        ("hpc7a.96xlarge", True, None),
        ("mac2.metal", False, None),
    ],
)
def test_each_family_of_machines_has_its_own_limit(
    instance_type: str, spot: bool, code: str | None
) -> None:
    quota = quota_of(instance_type, spot)
    assert (quota.code if quota else None) == code
    assert quota is None or quota.covers(instance_type)


def test_what_is_up_counts_against_the_limit_of_its_way_of_paying() -> None:
    on_demand, spot = quota_of("p5.48xlarge", False), quota_of("p5.48xlarge", True)
    assert on_demand is not None and on_demand.covers("p3.2xlarge")
    assert spot is not None and not spot.covers("p3.2xlarge")


def firmware(folder: Path, vendor: str, product: str) -> Path:
    (folder / "sys_vendor").write_text(f"{vendor}\n", encoding="utf-8")
    (folder / "product_name").write_text(f"{product}\n", encoding="utf-8")
    return folder


def test_the_firmware_says_what_a_machine_is_rented_as(tmp_path: Path) -> None:
    place = firmware(tmp_path, "Amazon EC2", "g5.xlarge")
    assert machine_type(place, {}) == "aws g5.xlarge"
    assert machine_type(place, {"PACELINE_SPOT": "1"}) == "aws g5.xlarge spot"
    assert machine_type(firmware(tmp_path, "Dell Inc.", "PowerEdge R750"), {}) is None
    assert machine_type(tmp_path / "nowhere", {}) is None


def test_the_newest_price_of_a_way_to_pay_is_found(tmp_path: Path) -> None:
    file = tmp_path / "prices.json"
    assert find_price("aws g5.xlarge", file) is None
    remember_price("aws g5.xlarge", Price(1.0, ON_DEMAND, "us-east-1", 10.0), file)
    remember_price("aws g5.xlarge", Price(1.2, ON_DEMAND, "eu-west-1", 20.0), file)
    remember_price("aws g5.xlarge", Price(0.3, SPOT, "us-east-1", 5.0), file)
    newest, spot = find_price("aws g5.xlarge", file), find_price("aws g5.xlarge spot", file)
    assert newest is not None and (newest.per_hour, newest.region) == (1.2, "eu-west-1")
    assert spot is not None and spot.per_hour == 0.3
    file.write_text("torn", encoding="utf-8")
    assert find_price("aws g5.xlarge", file) is None


@pytest.fixture
def run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    stored = plateaued(tmp_path / "run")
    stored.environment(machine_type="aws g5.xlarge")
    return tmp_path / "run"


def test_a_report_uses_the_price_that_the_cloud_has_told(run: Path) -> None:
    before = cost(read_run(run))
    assert "paceline cloud check aws --type g5.xlarge" in before.missing
    remember_price("aws g5.xlarge", Price(1.5, ON_DEMAND, "us-east-1", time.time()))
    told = cost(read_run(run))
    assert told.figures["price_per_hour"] == 2 * 1.5, "of both hosts"
    assert "at 3 an hour for 2 hosts together" in told.sentence
    assert "aws g5.xlarge on demand in us-east-1, asked on 20" in told.how


def test_what_the_user_says_of_prices_counts_more(run: Path) -> None:
    remember_price("aws g5.xlarge", Price(1.5, ON_DEMAND, "us-east-1", time.time()))
    told = cost(read_run(run, Options(price_per_hour=0.25)))
    assert told.figures["price_per_hour"] == 2 * 0.25 and "g5.xlarge" not in told.how


def test_imported_hosts_have_the_price_that_is_known_of_their_type(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    remember_price("aws g5.xlarge", Price(1.5, ON_DEMAND, "us-east-1", time.time()))
    remember_price("aws g5.xlarge", Price(0.4, SPOT, "us-east-1", time.time()))
    running = {"State": {"Name": "running"}, "InstanceType": "g5.xlarge"}
    instances = [
        {**running, "InstanceId": "i-1", "PrivateIpAddress": "10.0.0.1"},
        {**running, "InstanceId": "i-2", "PrivateIpAddress": "10.0.0.2"}
        | {"InstanceLifecycle": "spot"},
        {
            **running,
            "InstanceId": "i-3",
            "PrivateIpAddress": "10.0.0.3",
            "InstanceType": "c5.large",
        },
    ]
    text = json.dumps({"Reservations": [{"Instances": instances}]})
    hosts = yaml.safe_load(import_hosts("aws", text, {}, lambda _text: None))["hosts"]
    assert [host.get("price_per_hour") for host in hosts] == [1.5, 0.4, None]
