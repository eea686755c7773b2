"""Questions to AWS, with credentials that may only read. docs/cloud.md lists every call.

A question that may not be asked leaves a hole in the facts, with the permission that is missing.
"""

import datetime
import json
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from paceline.cloud.facts import CloudFacts, Machine, Wanted
from paceline.cloud.quotas import quota_of
from paceline.errors import UserError

Clients = Callable[[str, str], Any]
"""A client of a service in a region."""

_GPU_IMAGE = (
    "/aws/service/deeplearning/ami/{}/base-oss-nvidia-driver-gpu-ubuntu-22.04/latest/ami-id"
)
_CPU_IMAGE = "/aws/service/canonical/ubuntu/server/24.04/stable/current/{}/hvm/ebs-gp3/ami-id"
_PRICING_REGION = "us-east-1"
_LOGIN = "`aws configure sso` or `aws configure`, then `aws sts get-caller-identity`"


def make_clients() -> Clients:
    """boto3's, with the credentials that AWS's own tools use."""
    try:
        import boto3  # noqa: PLC0415  (an extra, wanted by these verbs alone)
        from botocore.config import Config  # noqa: PLC0415
    except ImportError as error:
        raise UserError("asking AWS needs its library, boto3", "pip install boto3") from error
    with said_plainly():
        session = boto3.Session()
    settings = Config(connect_timeout=5, read_timeout=20, retries={"max_attempts": 2})
    return lambda service, region: session.client(service, region_name=region, config=settings)


def default_region() -> str | None:
    try:
        import boto3  # noqa: PLC0415
    except ImportError:
        return None
    with said_plainly():
        region: str | None = boto3.Session().region_name
    return region


def learn(wanted: Wanted, clients: Clients) -> CloudFacts:
    """All that is asked before paying."""
    account = find_account(clients, wanted.region)
    ec2 = clients("ec2", wanted.region)
    described = _describe_type(ec2, wanted)
    unknown: dict[str, str] = {}
    facts: dict[str, Any] = {}
    questions: dict[str, Callable[[], dict[str, Any]]] = {
        "quota": lambda: _quota(wanted, ec2, clients("service-quotas", wanted.region)),
        "image": lambda: _image(described, clients("ssm", wanted.region)),
        "price": lambda: {"price_on_demand": on_demand_price(wanted.type, wanted.region, clients)},
        "spot": lambda: {"price_spot": spot_prices(ec2, wanted.type)},
    }
    for name, ask in questions.items():
        try:
            facts |= ask()
        except Exception as error:
            unknown[name] = explain(error)
    gpus = (described.get("GpuInfo") or {}).get("Gpus") or []
    return CloudFacts(
        account=account,
        num_vcpus=described["VCpuInfo"]["DefaultVCpus"],
        num_gpus=sum(gpu["Count"] for gpu in gpus),
        gpu=gpus[0]["Name"] if gpus else "",
        zones=_zones(ec2, wanted.type),
        unknown=unknown,
        **_network(described),
        **facts,
    )


def find_account(clients: Clients, region: str) -> str:
    """The first question: it tells at once that credentials are missing or too old."""
    with said_plainly():
        return str(clients("sts", region).get_caller_identity()["Account"])


@contextmanager
def said_plainly() -> Iterator[None]:
    try:
        yield
    except UserError:
        raise
    except Exception as error:
        raise UserError(f"AWS cannot be asked: {explain(error)}", _remedy(error)) from error


def error_code(error: Exception) -> str:
    response = getattr(error, "response", None) or {}
    return str((response.get("Error") or {}).get("Code", ""))


def explain(error: Exception) -> str:
    code = error_code(error)
    operation = getattr(error, "operation_name", "")
    if code in ("AccessDenied", "AccessDeniedException", "UnauthorizedOperation"):
        return f"these credentials may not call {operation} (docs/cloud.md has a policy)"
    if code:
        return f"{operation} answered {code}"
    return " ".join(str(error).split()) or type(error).__name__


def _remedy(error: Exception) -> str:
    name, code = type(error).__name__, error_code(error)
    if name == "ProfileNotFound":
        return "AWS_PROFILE names none of your profiles: `aws configure list-profiles` lists them"
    if name in ("NoCredentialsError", "PartialCredentialsError"):
        return f"log in: {_LOGIN}"
    if code in ("ExpiredToken", "ExpiredTokenException", "RequestExpired") or "SSO" in name:
        return f"the login is too old; log in again: `aws sso login`, or {_LOGIN}"
    if code in ("InvalidClientTokenId", "SignatureDoesNotMatch", "AuthFailure"):
        return f"AWS does not know these credentials: {_LOGIN}"
    if name in ("EndpointConnectionError", "ConnectTimeoutError", "NoRegionError"):
        return "check the network, and that --region names a region of AWS"
    return f"check the credentials: {_LOGIN}"


def _describe_type(ec2: Any, wanted: Wanted) -> dict[str, Any]:
    try:
        answer = ec2.describe_instance_types(InstanceTypes=[wanted.type])
    except Exception as error:
        if error_code(error) in ("InvalidInstanceType", "InvalidParameterValue"):
            raise UserError(
                f"AWS has no type {wanted.type} in {wanted.region}",
                "check the spelling (g4dn.2xlarge), or name another --region",
            ) from error
        raise UserError(f"AWS cannot be asked: {explain(error)}", _remedy(error)) from error
    described: dict[str, Any] = answer["InstanceTypes"][0]
    return described


def _zones(ec2: Any, instance_type: str) -> tuple[str, ...]:
    with said_plainly():
        answer = ec2.describe_instance_type_offerings(
            LocationType="availability-zone",
            Filters=[{"Name": "instance-type", "Values": [instance_type]}],
        )
    return tuple(sorted(offer["Location"] for offer in answer["InstanceTypeOfferings"]))


def _network(described: dict[str, Any]) -> dict[str, Any]:
    cards = (described.get("NetworkInfo") or {}).get("NetworkCards") or []
    baseline = [c["BaselineBandwidthInGbps"] for c in cards if "BaselineBandwidthInGbps" in c]
    burst = [c["PeakBandwidthInGbps"] for c in cards if "PeakBandwidthInGbps" in c]
    if not baseline:
        return {}
    return {"baseline_gbit": sum(baseline), "burst_gbit": sum(burst) if burst else None}


def _quota(wanted: Wanted, ec2: Any, quotas: Any) -> dict[str, Any]:
    quota = quota_of(wanted.type, wanted.spot)
    if quota is None:
        return {}
    answer = _get_quota(quotas, quota.code)
    used = Counter(
        one["InstanceType"]
        for one in _instances(ec2, ["pending", "running"])
        if quota.covers(one["InstanceType"])
        and (one.get("InstanceLifecycle") == "spot") == wanted.spot
    )
    return {
        "quota_vcpus": float(answer["Quota"]["Value"]),
        "used_vcpus": float(_num_vcpus(ec2, used)),
    }


def _get_quota(quotas: Any, code: str) -> dict[str, Any]:
    """An account that never had it changed may have the default alone."""
    asked = {"ServiceCode": "ec2", "QuotaCode": code}
    try:
        answer: dict[str, Any] = quotas.get_service_quota(**asked)
    except Exception as error:
        if error_code(error) != "NoSuchResourceException":
            raise
        answer = quotas.get_aws_default_service_quota(**asked)
    return answer


def _num_vcpus(ec2: Any, machines: Counter[str]) -> int:
    """What AWS counts against a quota is what a type has by default."""
    if not machines:
        return 0
    described = ec2.describe_instance_types(InstanceTypes=sorted(machines))["InstanceTypes"]
    return sum(machines[d["InstanceType"]] * int(d["VCpuInfo"]["DefaultVCpus"]) for d in described)


def _instances(ec2: Any, states: list[str]) -> Iterator[dict[str, Any]]:
    pages = ec2.get_paginator("describe_instances").paginate(
        Filters=[{"Name": "instance-state-name", "Values": states}]
    )
    for page in pages:
        for reservation in page["Reservations"]:
            yield from reservation["Instances"]


def _image(described: dict[str, Any], ssm: Any) -> dict[str, Any]:
    kinds = (described.get("ProcessorInfo") or {}).get("SupportedArchitectures") or []
    is_arm = "arm64" in kinds
    if described.get("GpuInfo"):
        name = _GPU_IMAGE.format("arm64" if is_arm else "x86_64")
    else:
        name = _CPU_IMAGE.format("arm64" if is_arm else "amd64")
    found = ssm.get_parameter(Name=name)["Parameter"]["Value"]
    return {"image": f"{found} ({name.rpartition('/latest')[0] or name})"}


def on_demand_price(instance_type: str, region: str, clients: Clients) -> float | None:
    """Linux, shared hardware, nothing preinstalled that is paid for."""
    terms = {
        "instanceType": instance_type,
        "regionCode": region,
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
    }
    answer = clients("pricing", _PRICING_REGION).get_products(
        ServiceCode="AmazonEC2",
        Filters=[{"Type": "TERM_MATCH", "Field": k, "Value": v} for k, v in terms.items()],
    )
    for text in answer["PriceList"]:
        offers = json.loads(text)["terms"].get("OnDemand", {}).values()
        for dimension in (d for offer in offers for d in offer["priceDimensions"].values()):
            price = float(dimension["pricePerUnit"].get("USD", 0))
            if price > 0:
                return price
    return None


def spot_prices(ec2: Any, instance_type: str) -> dict[str, float]:
    """The newest of each zone."""
    day = datetime.timedelta(days=1)
    answer = ec2.describe_spot_price_history(
        InstanceTypes=[instance_type],
        ProductDescriptions=["Linux/UNIX"],
        StartTime=datetime.datetime.now(datetime.UTC) - day,
    )
    newest: dict[str, tuple[Any, float]] = {}
    for entry in answer["SpotPriceHistory"]:
        zone, when = entry["AvailabilityZone"], entry["Timestamp"]
        if zone not in newest or when > newest[zone][0]:
            newest[zone] = (when, float(entry["SpotPrice"]))
    return {zone: price for zone, (_, price) in newest.items()}


def find_machines(
    clients: Clients, regions: list[str]
) -> tuple[list[Machine], dict[str, UserError]]:
    """Of this account, up in these regions; and the regions that could not be asked, since
    companies close some. What a stopped machine keeps is a disk that costs."""
    found: list[Machine] = []
    refused: dict[str, UserError] = {}
    for region in regions:
        try:
            found += _machines_in(region, clients)
        except UserError as error:
            refused[region] = error
    if refused and len(refused) == len(regions):
        raise next(iter(refused.values()))
    return found, refused


def _machines_in(region: str, clients: Clients) -> list[Machine]:
    now = datetime.datetime.now(datetime.UTC)
    states = ["pending", "running", "stopping", "stopped"]
    with said_plainly():
        instances = list(_instances(clients("ec2", region), states))
        return [_machine(one, region, now, clients) for one in instances]


def find_group(clients: Clients, region: str, name: str) -> dict[str, Any] | None:
    """By name, in the network that the account uses by default."""
    with said_plainly():
        answer = clients("ec2", region).describe_security_groups(
            Filters=[{"Name": "group-name", "Values": [name]}]
        )
    groups: list[dict[str, Any]] = answer["SecurityGroups"]
    return groups[0] if groups else None


def all_regions(clients: Clients, region: str) -> list[str]:
    with said_plainly():
        answer = clients("ec2", region).describe_regions()
    return sorted(one["RegionName"] for one in answer["Regions"])


def _machine(one: dict[str, Any], region: str, now: datetime.datetime, clients: Clients) -> Machine:
    tags = {tag["Key"]: tag["Value"] for tag in one.get("Tags") or []}
    is_spot = one.get("InstanceLifecycle") == "spot"
    try:
        price = (
            spot_prices(clients("ec2", region), one["InstanceType"]).get(
                (one.get("Placement") or {}).get("AvailabilityZone", "")
            )
            if is_spot
            else on_demand_price(one["InstanceType"], region, clients)
        )
    except Exception:
        price = None
    return Machine(
        one["InstanceId"],
        one["InstanceType"],
        region,
        one["State"]["Name"],
        max(0.0, (now - one["LaunchTime"]).total_seconds()),
        tags.get("Name", ""),
        is_spot,
        price,
        tags.get("skypilot-cluster-name") or tags.get("ray-cluster-name"),
    )
