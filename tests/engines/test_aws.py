"""AWS over HTTP as moto serves it, and botocore's stubs for what moto does not have."""

import json
import os
import socket
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from paceline.cloud.aws import learn
from paceline.cloud.facts import Wanted
from paceline.cloud.verdicts import Row, judge
from paceline.errors import UserError

pytestmark = pytest.mark.engines

REGION = "us-east-1"
WANTED = Wanted("g4dn.2xlarge", 4, REGION, hours=10)


@pytest.fixture(scope="module")
def moto_address() -> Iterator[str]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    server = subprocess.Popen(
        [sys.executable, "-m", "moto.server", "-H", "127.0.0.1", "-p", str(port)],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    until = time.monotonic() + 60
    while time.monotonic() < until:
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.2)
    yield f"http://127.0.0.1:{port}"
    server.kill()
    server.wait()


@pytest.fixture(autouse=True)
def nobodys_credentials(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Nothing of this machine's own may be found, and AWS itself never be asked."""
    for name in list(os.environ):
        if name.startswith("AWS_"):
            monkeypatch.delenv(name)
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")


@pytest.fixture
def aws(moto_address: str, monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("AWS_ENDPOINT_URL", moto_address)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    return moto_address


class Clients:
    """moto's over HTTP; quotas and prices as stubs, which moto does not have."""

    def __init__(self, quota: float) -> None:
        self._quota = quota

    def __call__(self, service: str, region: str) -> Any:
        import boto3
        from botocore.stub import ANY, Stubber

        client = boto3.client(service, region_name=region)
        if service not in ("service-quotas", "pricing"):
            return client
        stub = Stubber(client)
        if service == "service-quotas":
            asked = {"ServiceCode": "ec2", "QuotaCode": "L-DB2E81BA"}
            stub.add_response("get_service_quota", {"Quota": {"Value": self._quota}}, asked)
        else:
            dimension = {"pricePerUnit": {"USD": "0.7520000000"}}
            terms = {"OnDemand": {"a": {"priceDimensions": {"b": dimension}}}}
            answer = {"PriceList": [json.dumps({"terms": terms})]}
            asked = {"ServiceCode": "AmazonEC2", "Filters": ANY}
            stub.add_response("get_products", answer, asked)
        stub.activate()
        return client


def rows_with(rows: list[Row], text: str) -> list[Row]:
    return [row for row in rows if text in row.what]


def test_a_plan_that_fits_has_its_machines_zones_network_and_cost_told(aws: str) -> None:
    rows = judge(WANTED, learn(WANTED, Clients(quota=64)))
    assert rows_with(rows, "4 x g4dn.2xlarge: 8 vCPUs, 1 x T4 each")
    assert rows_with(rows, "offered in us-east-1a")
    assert rows_with(rows, "64 vCPUs, 0 in use, 32 wanted")[0].mark == "ok"
    assert rows_with(rows, "network: 10 Gbit/s, up to 25")
    assert rows_with(rows, "$0.752 per host and hour, $3.01 for all per hour, $30.08 for 10 h")
    assert all(row.mark != "FAIL" for row in rows)


@pytest.mark.parametrize("quota", [0.0, 24.0])
def test_a_quota_that_is_too_low_comes_with_the_request_to_file(aws: str, quota: float) -> None:
    (row,) = rows_with(judge(WANTED, learn(WANTED, Clients(quota))), "too few")
    assert row.mark == "FAIL"
    assert "--quota-code L-DB2E81BA --desired-value 32 --region us-east-1" in row.fix
    assert "days" in row.fix


def test_what_is_running_already_counts_against_the_quota(aws: str) -> None:
    import boto3

    ec2 = boto3.client("ec2", region_name=REGION)
    image = ec2.describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
    started = ec2.run_instances(ImageId=image, InstanceType="g4dn.2xlarge", MinCount=1, MaxCount=1)
    identity = started["Instances"][0]["InstanceId"]
    try:
        facts = learn(WANTED, Clients(quota=64))
        assert facts.used_vcpus == 8
    finally:
        ec2.terminate_instances(InstanceIds=[identity])


def test_an_unknown_type_is_refused_with_what_to_do(aws: str) -> None:
    with pytest.raises(UserError, match="no type g4dn"):
        learn(Wanted("g4dn.2xlarg", 1, REGION), Clients(quota=64))


def paceline(*words: str) -> "subprocess.CompletedProcess[str]":
    return subprocess.run(
        [sys.executable, "-m", "paceline.cli", "cloud", *words],
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )


def test_the_command_says_what_it_could_not_ask(aws: str) -> None:
    done = paceline("check", "aws", "--type", "g4dn.2xlarge", "--region", REGION)
    assert done.returncode == 0, done.stderr
    assert "offered in us-east-1a" in done.stdout
    assert "?     limit of vCPUs not known" in done.stdout, "moto has no quotas"
    assert "Traceback" not in done.stderr


def test_without_credentials_the_command_says_how_to_log_in() -> None:
    done = paceline("check", "aws", "--type", "g4dn.2xlarge", "--region", REGION)
    assert done.returncode == 2
    assert "fix: log in: `aws configure sso`" in done.stderr


@pytest.mark.parametrize(
    ("code", "remedy"), [("ExpiredToken", "too old"), ("InvalidClientTokenId", "does not know")]
)
def test_credentials_that_aws_refuses_are_told_apart(code: str, remedy: str, aws: str) -> None:
    import boto3
    from botocore.stub import Stubber

    client = boto3.client("sts", region_name=REGION)
    stub = Stubber(client)
    stub.add_client_error("get_caller_identity", code)
    stub.activate()
    with pytest.raises(UserError, match="AWS cannot be asked") as caught:
        learn(WANTED, lambda _service, _region: client)
    assert remedy in caught.value.fix


def test_machines_that_are_up_are_listed_with_the_command_that_ends_them(
    aws: str, tmp_path: Path
) -> None:
    import boto3

    ec2 = boto3.client("ec2", region_name="eu-west-1")
    image = ec2.describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
    tags = [{"Key": "Name", "Value": "forgotten"}]
    started = ec2.run_instances(
        ImageId=image,
        InstanceType="c5.large",
        MinCount=1,
        MaxCount=1,
        TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
    )
    identity = started["Instances"][0]["InstanceId"]
    remember_cluster(tmp_path / ".sky")
    try:
        done = paceline("running", "--region", "eu-west-1")
    finally:
        ec2.terminate_instances(InstanceIds=[identity])
    assert done.returncode == 0, done.stderr
    assert f"{identity} c5.large eu-west-1 running" in done.stdout
    assert f"terminate-instances --region eu-west-1 --instance-ids {identity}" in done.stdout
    assert "SkyPilot: train" in done.stdout and "sky down 'train" in done.stdout
    assert "\x1b" not in done.stdout


def remember_cluster(folder: Path) -> None:
    """As SkyPilot 0.14 does, in the columns that are looked at."""
    folder.mkdir()
    with sqlite3.connect(folder / "state.db") as database:
        database.execute("CREATE TABLE clusters (name, launched_at, handle, status, autostop)")
        row = ("train\x1b[31m", int(time.time()) - 7200, b"", "UP", 10)
        database.execute("INSERT INTO clusters VALUES (?, ?, ?, ?, ?)", row)


def test_google_cloud_is_said_not_to_exist() -> None:
    done = paceline("check", "gcp", "--type", "n1-standard-8")
    assert done.returncode == 2
    assert "does not exist for Google Cloud" in done.stderr
