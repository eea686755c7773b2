"""Plans: the catalogue, prices, what is planned from, the forms, and mistakes."""

import json
from dataclasses import replace
from importlib import resources
from pathlib import Path

import jsonschema
import pytest

from paceline import recipe
from paceline.errors import UserError
from paceline.pace.exchange import Size
from paceline.pace.predict import predict
from paceline.plan.basis import Basis, basis_of_path, basis_of_recipe, waiting_as_jitter
from paceline.plan.catalogue import (
    Instance,
    devices,
    find_device,
    find_instance,
    instances,
    link_of_type,
)
from paceline.plan.elsewhere import Then, moved_to
from paceline.plan.page import as_html
from paceline.plan.plan import Plan, Question, plan
from paceline.plan.prices import price_of
from paceline.plan.render import as_json, as_text
from paceline.report.own.run import read_run
from paceline.train.measure.work import Work, count_work
from tests import stored_runs
from tests.conftest import CommandLine
from tests.paces import figure, job, link
from tests.test_foreign_golden import ARGUMENTS, TIMES
from tests.test_foreign_text import imagenet_log

LARGE_CARD = 80 * 2**30


@pytest.fixture(autouse=True)
def no_data_and_no_prices(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A new machine: nothing is prepared, nobody was asked what a machine costs."""
    monkeypatch.setenv("PACELINE_DATA", str(tmp_path / "no-data"))
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setenv("HOME", str(tmp_path))


@pytest.fixture(scope="module")
def work() -> Work:
    """Of ResNet-20 on CIFAR-10, counted without its data."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("PACELINE_DATA", "/nonexistent")
        return count_work(recipe.load("cifar10-resnet20", []))


def test_an_interval_is_wider_where_less_is_known() -> None:
    on_t4 = moved_to(job(flops_per_unit=4e8), find_instance("g4dn.2xlarge"), Then("cpu"))
    (sure,) = predict(job(measured_processes=1), link(1e9), [Size(1)])
    (unsure,) = predict(on_t4, link(1e9), [Size(1)])
    widths = [(one.step_seconds.high / one.step_seconds.low) for one in (sure, unsure)]
    assert widths[0] < 1.2 and widths[1] > 2


def test_the_catalogue_knows_baseline_and_burst() -> None:
    found = link_of_type(find_instance("g4dn.2xlarge"))
    assert found.bits_per_second.value == 10e9 and found.burst_bits_per_second == 25e9


def test_every_device_of_the_tables_has_a_peak_or_is_named_with_the_nearest() -> None:
    unknown = {one.device for one in instances().values() if one.num_devices} - set(devices())
    assert unknown <= {"NVIDIA RTX PRO Server 6000", "NVIDIA RTX PRO 4500"}
    strange = Instance("x1.large", 8, 2e10, "NVIDIA A100X", 1, 8e10, 1e9, 1e9)
    with pytest.raises(UserError, match="NVIDIA A100"):
        find_device(strange)
    for one in instances().values():
        if not one.num_devices:
            assert find_device(one).peak_flops["fp32"] > 1e10


def test_an_unknown_type_gets_the_nearest_names() -> None:
    with pytest.raises(UserError) as error:
        find_instance("g4dn.2xlrge")
    assert "g4dn.2xlarge" in error.value.fix


def test_a_job_on_the_same_device_is_as_measured() -> None:
    known = job(flops_per_unit=4e8)
    same = moved_to(known, find_instance("g4dn.12xlarge"), Then("NVIDIA T4"))
    assert same.compute == known.compute and same.devices_per_host == 4


def write_catalogue(home: Path, version: str, price: str) -> None:
    """As SkyPilot keeps it for its user."""
    folder = home / ".sky" / "catalogs" / version / "aws"
    folder.mkdir(parents=True)
    head = "InstanceType,AcceleratorName,AcceleratorCount,vCPUs,MemoryGiB,GpuInfo,Price,SpotPrice,"
    rows = [
        f"{head}Region,AvailabilityZone",
        f"g4dn.2xlarge,T4,1,8,32,,{price},0.2,us-east-1,us-east-1a",
        "g4dn.2xlarge,T4,1,8,32,,0.6,0.2,eu-north-1,eu-north-1a",
        "g5.xlarge,A10G,1,4,16,,,0.4,us-east-1,us-east-1a",
    ]
    (folder / "vms.csv").write_text("\n".join(rows) + "\n", encoding="utf-8")


def test_prices_come_from_the_users_own_skypilot_catalogue(tmp_path: Path) -> None:
    assert price_of("g4dn.2xlarge", None) is None
    write_catalogue(tmp_path, "v5", "0.5")
    write_catalogue(tmp_path, "v8", "0.752")
    found = price_of("g4dn.2xlarge", None)
    assert found is not None and found.per_hour == 0.752
    assert "SkyPilot" in found.source and "us-east-1" in found.source
    assert price_of("g5.xlarge", None) is None  # it has no price on demand
    given = price_of("g4dn.2xlarge", 0.3)
    assert given is not None and given.per_hour == 0.3


def test_a_catalogue_that_is_none_is_no_price(tmp_path: Path) -> None:
    folder = tmp_path / ".sky/catalogs/v8/aws"
    folder.mkdir(parents=True)
    (folder / "vms.csv").write_bytes(b"\xff\xfe\x00 not a table")
    assert price_of("g4dn.2xlarge", None) is None


def planned(tmp_path: Path, **question: object) -> Plan:
    run = stored_runs.plateaued(tmp_path / "a").path
    asked = replace(Question(hosts=(1, 2), price_per_hour=2.0), **question)  # type: ignore[arg-type]
    return plan(basis_of_path(run, None, None), asked)


def test_a_run_is_planned_from_and_its_own_size_is_predicted_as_measured(tmp_path: Path) -> None:
    found = planned(tmp_path)
    facts = read_run(tmp_path / "a")
    same = found.predictions[-1]
    assert facts.world.num_hosts == 2
    assert same.step_seconds.middle == pytest.approx(facts.verdict.step_seconds, rel=0.03)
    assert found.job.network.source.startswith("measured")
    assert same.cost is not None and same.total_seconds is not None


def test_a_plan_is_told_as_text_and_as_a_page(tmp_path: Path) -> None:
    found = planned(tmp_path)
    for shown in (as_text(found), as_html(found)):
        for words in ("bottleneck", "speed-up", "to the end", "measured in", "link busy"):
            assert words in shown
    assert as_html(found).count("<svg") == 2


def test_the_json_form_is_as_its_schema_says(tmp_path: Path) -> None:
    file = resources.files("paceline.plan") / "plan.schema.json"
    schema = json.loads(file.read_text(encoding="utf-8"))
    jsonschema.Draft202012Validator.check_schema(schema)
    for found in (planned(tmp_path), planned(tmp_path / "b", bits_per_second=1e9)):
        told = json.loads(as_json(found))
        jsonschema.validate(told, schema)
        for size in told["sizes"]:
            total = sum(size["phase_seconds"].values())
            assert total == pytest.approx(size["step_seconds"]["middle"])


def test_a_log_of_another_tool_is_planned_from_as_far_as_it_goes(tmp_path: Path) -> None:
    log = tmp_path / "imagenet.log"
    log.write_text(ARGUMENTS + imagenet_log() + TIMES, encoding="utf-8")
    basis = basis_of_path(log, None, None)
    (alone,) = plan(basis, Question(hosts=(1,))).predictions
    assert alone.bottleneck == "input"
    given = basis_of_path(log, None, 46.8e6)
    found = plan(given, Question(hosts=(1, 2), bits_per_second=1e9))
    assert found.predictions[1].sent_bytes_per_step == pytest.approx(46.8e6)
    assert any("--same-batch" in note for note in found.notes)
    shared = plan(given, Question(hosts=(1, 2), bits_per_second=1e9, is_same_batch=True))
    assert shared.predictions[1].step_seconds.middle < found.predictions[1].step_seconds.middle


def test_a_recipe_is_planned_before_there_is_data_or_a_machine(work: Work) -> None:
    loaded = recipe.load("cifar10-resnet20", [])
    basis = basis_of_recipe(loaded, "cifar10-resnet20", work)
    found = plan(basis, Question(hosts=(1, 2, 4), type_name="g4dn.2xlarge"))
    assert work.is_made_up and work.unit == "image"
    assert work.flops_per_unit == pytest.approx(6 * 40.6e6, rel=0.1)  # as the paper counts it
    assert found.memory is not None and found.memory.fits
    assert found.predictions[0].total_seconds is not None
    assert found.job.units_per_step == 128
    assert "usual shape" in " ".join(found.notes)


def test_a_processor_can_be_rented_as_well(work: Work) -> None:
    basis = basis_of_recipe(recipe.load("cifar10-resnet20", []), "a", work)
    small, large = (
        plan(basis, Question(hosts=(1,), type_name=name)).predictions[0].units_per_second.middle
        for name in ("c7i.xlarge", "c7i.4xlarge")
    )
    assert large == pytest.approx(4 * small, rel=0.05)


def test_what_processes_of_one_host_waited_says_nothing_about_a_link() -> None:
    measured = job(network=figure(3.0), measured_processes=2, devices_per_host=2)
    on_wire = waiting_as_jitter(measured)
    assert on_wire.network.value == 1.0
    assert on_wire.jitter.value == pytest.approx(3 * measured.jitter.value)
    (before, there), (after, far) = (
        [one.step_seconds.middle for one in predict(it, link(1e8), [Size(1, 2), Size(2, 2)])]
        for it in (measured, on_wire)
    )
    assert after == pytest.approx(before, rel=0.03)
    assert far < 0.5 * there


def test_a_plan_is_for_the_exchange_that_the_recipe_asks_for(work: Work) -> None:
    asked = Question((4,), type_name="g4dn.2xlarge", bits_per_second=1e8)
    loaded = {
        kind: recipe.load("cifar10-resnet20", [f"reduce={kind}"])
        for kind in ("plain", "bf16", "diloco", "auto")
    }
    found = {kind: plan(basis_of_recipe(one, "a", work), asked) for kind, one in loaded.items()}
    seconds = {kind: one.predictions[0].step_seconds.middle for kind, one in found.items()}
    assert seconds["diloco"] < seconds["bf16"] < seconds["plain"] == seconds["auto"]
    sent = {kind: one.predictions[0].sent_bytes_per_step for kind, one in found.items()}
    assert sent["diloco"] == pytest.approx(sent["plain"] * 4.25 / 32 / 8)
    assert "diloco" in {remedy.name for remedy in found["plain"].remedies}
    assert not {"bf16", "diloco"} & {remedy.name for remedy in found["diloco"].remedies}
    assert "as reduce=diloco does, every 8 steps" in as_text(found["diloco"])
    assert "this plan is for plain" in as_text(found["auto"])


def test_what_does_not_fit_the_memory_is_refused_with_what_would(work: Work) -> None:
    basis = basis_of_recipe(recipe.load("cifar10-resnet20", []), "a", work)
    assert basis.memory is not None and basis.memory.estimate is not None
    saved = replace(basis.memory.estimate.saved, num_bytes=40e9)
    estimate = replace(basis.memory.estimate, saved=saved, micro=512)
    large = replace(basis, memory=replace(basis.memory, estimate=estimate))
    with pytest.raises(UserError) as error:
        plan(large, Question(hosts=(1,), type_name="g4dn.2xlarge"))
    assert "17.2 GB" in error.value.what and "batch.micro=" in error.value.fix


def test_a_run_that_is_too_short_or_failed_is_refused(tmp_path: Path) -> None:
    run = stored_runs.three_steps(tmp_path / "a").path
    with pytest.raises(UserError, match="too few to plan from"):
        basis_of_path(run, None, None)


def test_gradients_that_nobody_knows_are_asked_for() -> None:
    with pytest.raises(UserError, match="how large the gradients are") as error:
        plan(Basis(job(gradient_bytes=None), Then()), Question((1, 2), bits_per_second=1e9))
    assert "--gradients" in error.value.fix


def test_a_basis_without_a_link_asks_for_one() -> None:
    with pytest.raises(UserError, match="how fast a link") as error:
        plan(Basis(job(measured_processes=1), Then()), Question(hosts=(1, 2)))
    assert "--network 1Gbit" in error.value.fix


def test_the_verb_says_what_is_missing(paceline: CommandLine, tmp_path: Path) -> None:
    run = stored_runs.overfitting(tmp_path / "a").path
    refused = paceline("plan", "--from", str(run), "--hosts", "1,2")
    assert refused.returncode == 2 and "--network 1Gbit" in refused.stderr
    shown = paceline("plan", "--from", str(run), "--hosts", "1,2", "--network", "1Gbit").stdout
    assert "speed-up" in shown and "measured in" in shown


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["--from", "RUN", "--hosts", "two"], "1,2,4,8"),
        (["--from", "RUN", "nmt-base"], "one of them"),
        ([], "one of them"),
        (["--from", "RUN", "--hosts", "hosts.yaml"], "numbers of hosts"),
        (["nmt-bse", "--type", "g4dn.2xlarge"], "nmt-base"),
        (["--from", "RUN", "--type", "g4dn.2xlrge", "--hosts", "1"], "g4dn.2xlarge"),
    ],
)
def test_mistakes_are_told_in_one_message(
    paceline: CommandLine, tmp_path: Path, words: list[str], told: str
) -> None:
    run = stored_runs.overfitting(tmp_path / "a").path
    refused = paceline("plan", *(str(run) if word == "RUN" else word for word in words))
    assert refused.returncode == 2 and told in refused.stderr
    assert "Traceback" not in refused.stderr
