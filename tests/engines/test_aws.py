"""AWS over HTTP as moto serves it, and botocore's stubs for what moto does not have."""

import json
import os
import shlex
import socket
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from paceline.cloud.aws import all_regions, find_group, find_machines, learn
from paceline.cloud.facts import CloudFacts, Machine, Wanted
from paceline.cloud.known_prices import remember
from paceline.cloud.skypilot import cluster_behind
from paceline.cloud.verdicts import Row, end_commands, judge
from paceline.errors import UserError
from paceline.report.prices import find_price

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
            missing = "NoSuchResourceException"
            stub.add_client_error("get_service_quota", missing, expected_params=asked)
            default = {"Quota": {"Value": self._quota}}
            stub.add_response("get_aws_default_service_quota", default, asked)
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


_REMEMBER = """
import sqlalchemy
from sky.global_user_state import cluster_table
engine = sqlalchemy.create_engine("sqlite:///" + {path!r})
cluster_table.metadata.create_all(engine)
row = dict(name={name!r}, launched_at={launched}, status="UP", autostop=10, to_down=1)
with engine.begin() as connection:
    connection.execute(cluster_table.insert().values(**row))
"""


def remember_cluster(folder: Path) -> None:
    """In SkyPilot's own table, as its own code makes it."""
    folder.mkdir()
    script = _REMEMBER.format(
        path=str(folder / "state.db"), name="train\x1b[31m", launched=int(time.time()) - 7200
    )
    subprocess.run([sys.executable, "-c", script], check=True)


def test_clusters_of_skypilot_are_listed_where_aws_cannot_be_asked(tmp_path: Path) -> None:
    alone = paceline("running")
    assert alone.returncode == 2 and "fix: log in" in alone.stderr
    remember_cluster(tmp_path / ".sky")
    done = paceline("running")
    assert done.returncode == 0
    assert "UP, launched 2 h" in done.stdout and "ends 10 idle minutes" in done.stdout
    assert "AWS was not asked" in done.stderr and "log in" in done.stderr


def aws_command(line: str) -> "subprocess.CompletedProcess[str]":
    """AWS's own command line, with the words that were printed."""
    program, *words = shlex.split(line)
    assert program == "aws"
    own = Path(sys.executable).parent / "aws"
    return subprocess.run(
        [sys.executable, str(own), *words], capture_output=True, text=True, check=False
    )


def test_the_printed_commands_make_a_group_that_is_closed_to_the_world(aws: str) -> None:
    words = ("group", "aws", "training", "--from", "203.0.113.7", "--region", REGION)
    printed = paceline(*words)
    assert printed.returncode == 0, printed.stderr
    assert "0.0.0.0/0" not in printed.stdout
    for line in printed.stdout.splitlines():
        done = aws_command(line)
        assert done.returncode == 0, done.stderr
    judged = paceline(*words)
    assert judged.returncode == 0 and "admits its own hosts" in judged.stdout


def test_a_group_of_that_name_that_is_open_to_the_world_comes_with_what_closes_it(
    aws: str,
) -> None:
    import boto3

    ec2 = boto3.client("ec2", region_name=REGION)
    ec2.create_security_group(GroupName="open", Description="of somebody")
    everybody = {"IpProtocol": "tcp", "FromPort": 22, "ToPort": 22}
    everybody["IpRanges"] = [{"CidrIp": "0.0.0.0/0"}]
    ec2.authorize_security_group_ingress(GroupName="open", IpPermissions=[everybody])
    words = ("group", "aws", "open", "--from", "203.0.113.7", "--region", REGION)
    judged = paceline(*words)
    assert judged.returncode == 1
    assert "FAIL  port 22 is open to 0.0.0.0/0" in judged.stdout
    fixes = [line.partition("fix: ")[2] for line in judged.stdout.splitlines() if "fix: " in line]
    assert len(fixes) == 2, "closed to the world, and open to itself"
    for line in fixes:
        assert aws_command(line).returncode == 0
    assert paceline(*words).returncode == 0


@pytest.mark.parametrize("source", ["0.0.0.0/0", "::/0", "10.0.0.0/8", "home"])
def test_a_group_for_everybody_is_refused(source: str) -> None:
    done = paceline("group", "aws", "--from", source, "--region", REGION)
    assert done.returncode == 2 and "error:" in done.stderr


def test_the_policy_in_the_docs_allows_every_call_and_nothing_more(aws: str) -> None:
    """Calls as botocore names them; a policy names them by what signs them."""
    asked: set[str] = set()

    def note(model: Any, **_more: Any) -> None:
        asked.add(f"{model.service_model.signing_name}:{model.name}")

    def clients(service: str, region: str) -> Any:
        client = Clients(quota=64)(service, region)
        client.meta.events.register("provide-client-params.*.*", note)
        return client

    with machines_up(aws, "g4dn.2xlarge"):
        learn(WANTED, clients)
        find_machines(clients, all_regions(clients, REGION)[:1])
    find_group(clients, REGION, "training")
    text = (Path(__file__).parents[2] / "docs" / "cloud.md").read_text(encoding="utf-8")
    policy, _end = json.JSONDecoder().raw_decode(text[text.index('{"Version"') :])
    (statement,) = policy["Statement"]
    assert set(statement["Action"]) == asked
    assert not [a for a in asked if not a.split(":")[1].startswith(("Get", "Describe"))]


def test_prices_are_kept_for_reports(aws: str, tmp_path: Path) -> None:
    facts = learn(WANTED, Clients(quota=64))
    remember(WANTED, facts)
    price = find_price("aws g4dn.2xlarge")
    assert price is not None and (price.per_hour, price.region) == (0.752, REGION)
    assert (tmp_path / ".cache" / "paceline" / "prices.json").is_file()


def test_the_command_that_ends_machines_ends_them(aws: str) -> None:
    with machines_up(aws, "c5.large") as identity:
        done = paceline("running", "--region", REGION)
        (line,) = [x for x in done.stdout.splitlines() if "terminate-instances" in x]
        ended = aws_command(line.partition("end it: ")[2])
        assert ended.returncode == 0, ended.stderr
        assert identity not in paceline("running", "--region", REGION).stdout


def test_the_request_for_a_higher_quota_is_one_that_aws_takes(aws: str) -> None:
    (row,) = rows_with(judge(WANTED, learn(WANTED, Clients(quota=0))), "too few")
    command = row.fix.partition("   (")[0]
    checked = aws_command(f"{command} --generate-cli-skeleton output")
    assert checked.returncode == 0, checked.stderr


def test_a_region_that_aws_does_not_have_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "testing")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "testing")
    done = paceline("check", "aws", "--type", "g4dn.2xlarge", "--region", "mars-north-1")
    assert done.returncode == 2
    assert "that --region names a region of AWS" in done.stderr


def test_a_region_where_nobody_offers_the_type_is_a_failure() -> None:
    facts = CloudFacts("1", 8, 1, "T4", zones=(), quota_vcpus=64, used_vcpus=0)
    (row,) = rows_with(judge(WANTED, facts), "is not offered in us-east-1")
    assert row.mark == "FAIL" and "--region" in row.fix


def test_a_region_that_may_not_be_asked_does_not_hide_the_others(aws: str) -> None:
    from botocore.stub import Stubber

    def clients(service: str, region: str) -> Any:
        client = Clients(quota=64)(service, region)
        if (service, region) == ("ec2", "eu-west-1"):
            stub = Stubber(client)
            stub.add_client_error("describe_instances", "UnauthorizedOperation")
            stub.activate()
        return client

    with machines_up(aws, "c5.large") as identity:
        found, refused = find_machines(clients, ["eu-west-1", REGION])
    assert [machine.id for machine in found] == [identity]
    assert list(refused) == ["eu-west-1"]
    assert "may not call DescribeInstances" in refused["eu-west-1"].what
    with pytest.raises(UserError, match="may not call DescribeInstances"):
        find_machines(clients, ["eu-west-1"])


@pytest.mark.parametrize("words", [("check", "aws", "--type", "c5.large"), ("running",)])
def test_a_profile_that_is_not_there_is_told(
    words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_PROFILE", "nobodys")
    done = paceline(*words)
    assert done.returncode == 2 and "Traceback" not in done.stderr
    assert "list-profiles" in done.stderr


@contextmanager
def machines_up(_aws: str, kind: str) -> Iterator[str]:
    import boto3

    ec2 = boto3.client("ec2", region_name=REGION)
    image = ec2.describe_images(Owners=["amazon"])["Images"][0]["ImageId"]
    started = ec2.run_instances(ImageId=image, InstanceType=kind, MinCount=1, MaxCount=1)
    identity = started["Instances"][0]["InstanceId"]
    try:
        yield identity
    finally:
        ec2.terminate_instances(InstanceIds=[identity])


def test_machines_of_skypilot_are_ended_by_the_name_that_it_knows_them_by() -> None:
    from sky.utils.common_utils import make_cluster_name_on_cloud

    for name in ("Train.2", "a-very-long-name-for-a-cluster-of-machines"):
        tag = make_cluster_name_on_cloud(name, max_length=35)
        assert cluster_behind(tag, ["other", name]) == name, tag
    assert cluster_behind("somebody-elses-12345678", ["train"]) is None
    mine = Machine("i-1", "c5.large", REGION, "running", 60, cluster="train-0123abcd")
    other = Machine("i-2", "c5.large", REGION, "running", 60, cluster="theirs-0123abcd")
    commands = end_commands([mine, other], ["train"])
    assert commands[0] == "sky down train"
    assert commands[1].endswith("--instance-ids i-2")


def test_google_cloud_is_said_not_to_exist() -> None:
    done = paceline("check", "gcp", "--type", "n1-standard-8")
    assert done.returncode == 2
    assert "does not exist for Google Cloud" in done.stderr
