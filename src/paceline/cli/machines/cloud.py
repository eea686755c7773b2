"""Verbs about rented machines: before paying, and after. They read, and change nothing."""

import argparse
import shlex

from paceline.arguments import Parser, Verbs, count, hours, say
from paceline.errors import UserError


def add_cloud(verbs: Verbs) -> None:
    cloud = verbs.add_parser("cloud", help="before and after paying: quotas, prices, what is up")
    inner = cloud.add_subparsers(
        dest="action", metavar="check|running|group", required=True, parser_class=Parser
    )
    check = inner.add_parser("check", help="whether a plan can be had, and what it costs")
    check.add_argument("provider", choices=["aws", "gcp"], help="which cloud")
    check.add_argument("--type", required=True, help="type of the machines, like g4dn.2xlarge")
    check.add_argument("--hosts", type=count, default=1, metavar="N", help="how many (default: 1)")
    check.add_argument("--region", help="default: that of your AWS configuration")
    check.add_argument("--spot", action="store_true", help="the limit that holds for spot machines")
    check.add_argument("--hours", type=hours, help="how long, for the cost of it all")
    check.set_defaults(call=check_cloud)
    running = inner.add_parser("running", help="what of yours is up, since when, what it costs")
    running.add_argument("--region", help="only there (default: all regions)")
    running.set_defaults(call=list_running)
    group = inner.add_parser(
        "group", help="a security group that lets in ssh from one address, and its own hosts"
    )
    group.add_argument("provider", choices=["aws"], help="which cloud")
    group.add_argument("name", nargs="?", default="paceline", help="default: paceline")
    group.add_argument(
        "--from",
        dest="source",
        required=True,
        metavar="ADDRESS",
        help="your own: 203.0.113.7",
    )
    group.add_argument("--region", help="default: that of your AWS configuration")
    group.set_defaults(call=show_group)


def check_cloud(arguments: argparse.Namespace) -> int:
    from paceline.cloud.aws import learn, make_clients
    from paceline.cloud.facts import Wanted
    from paceline.cloud.known_prices import remember
    from paceline.cloud.verdicts import can_be_had, judge, render
    from paceline.terminal import printable

    if arguments.provider == "gcp":
        raise UserError(
            "`cloud check` does not exist for Google Cloud: it could not be tried without it",
            "quotas and prices: console.cloud.google.com/iam-admin/quotas, gcloud compute "
            "regions describe REGION",
        )
    clients = make_clients()
    wanted = Wanted(
        arguments.type, arguments.hosts, _region(arguments), arguments.spot, arguments.hours
    )
    facts = learn(wanted, clients)
    say(f"asked AWS for account {facts.account}, region {wanted.region}; nothing was changed")
    rows = judge(wanted, facts)
    print(printable(render(rows)))
    if facts.price_on_demand is not None:
        remember(wanted, facts)
        say(f"reports on runs on {wanted.type} tell costs from now on, at these prices")
    return 0 if can_be_had(rows) else 1


def list_running(arguments: argparse.Namespace) -> int:
    """What can be asked is told, even where something else cannot be asked."""
    from paceline.cloud.skypilot import find_clusters
    from paceline.terminal import printable_line

    clusters = find_clusters()
    for cluster in clusters:
        print(printable_line(cluster.in_words()))
        print(f"  end it: sky down {shlex.quote(printable_line(cluster.name))}")
    if clusters:
        print("  what they have cost: sky cost-report")
    try:
        _list_aws(arguments, [cluster.name for cluster in clusters])
    except UserError as error:
        if not clusters:
            raise
        say(f"AWS was not asked: {error.what}\n  fix: {error.fix}")
    return 0


def _list_aws(arguments: argparse.Namespace, clusters: list[str]) -> None:
    from paceline.cloud.aws import all_regions, find_account, find_machines, make_clients
    from paceline.cloud.verdicts import describe_machine, end_commands, sum_up
    from paceline.terminal import printable_line

    clients = make_clients()
    region = _region(arguments, "us-east-1")
    account = find_account(clients, region)
    regions = [arguments.region] if arguments.region else all_regions(clients, region)
    machines, refused = find_machines(clients, regions)
    for machine in machines:
        print(printable_line(describe_machine(machine)))
    for command in end_commands(machines, clusters):
        print(f"  end it: {printable_line(command)}")
    for reason in dict.fromkeys(error.what for error in refused.values()):
        named = [region for region, error in refused.items() if error.what == reason]
        say(f"{', '.join(named)}: {reason}")
    where = arguments.region or f"{len(regions) - len(refused)} regions"
    say(
        f"AWS account {account}, {where}: {sum_up(machines)}. Only machines were looked for; "
        "disks, addresses and buckets cost as well"
    )


def show_group(arguments: argparse.Namespace) -> int:
    from paceline.cloud.aws import find_account, find_group, make_clients
    from paceline.cloud.group import check_source, commands_for, judge_group
    from paceline.cloud.verdicts import can_be_had, render
    from paceline.terminal import printable

    source, clients = check_source(arguments.source), make_clients()
    region = _region(arguments)
    account = find_account(clients, region)
    group = find_group(clients, region, arguments.name)
    if group is None:
        say(f"account {account} has no group '{arguments.name}' in {region}; these make one:")
        print("\n".join(commands_for(arguments.name, source, region)))
        say(f"then: paceline launch sky ... --group {arguments.name}")
        return 0
    rows = judge_group(group, region)
    print(printable(render(rows)))
    return 0 if can_be_had(rows) else 1


def _region(arguments: argparse.Namespace, otherwise: str | None = None) -> str:
    from paceline.cloud.aws import default_region

    region = arguments.region or default_region() or otherwise
    if region is None:
        raise UserError("no region is named", "--region us-east-1, or `aws configure`")
    return str(region)
