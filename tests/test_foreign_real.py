"""Reports on real logs of other tools, where they are at hand."""

import os
from pathlib import Path

import pytest

from paceline.report.answers.answer import QUESTIONS, Answer
from paceline.report.foreign import read_foreign
from paceline.units import parse_link_speed
from tests.log_answers import answers_of_log, heading_of

_BESIDE = Path(__file__).parents[2] / "shared" / "data"
LOGS = Path(os.environ.get("PACELINE_REAL_DATA", _BESIDE)) / "logs"
SEQ2SEQ = LOGS / "openseq2seq-nohup.log.gz"
IMAGENET = LOGS / "pytorch-imagenet-example-1vm.log"
EVENTS = LOGS / "tensorboard-imagenet-1vm"

pytestmark = pytest.mark.skipif(
    not SEQ2SEQ.exists(), reason=f"no real logs in {LOGS}; PACELINE_REAL_DATA names another place"
)


def by_key(given: list[Answer]) -> dict[str, Answer]:
    return {answer.key: answer for answer in given}


def test_on_the_imagenet_log_91_percent_of_the_step_is_input_wait() -> None:
    found = by_key(answers_of_log(IMAGENET))
    assert list(found) == list(QUESTIONS)
    assert "91 % of the step is input wait" in found["input"].sentence
    assert found["input"].figures["input_share"] == pytest.approx(0.9126, abs=0.0005)
    assert found["verdict"].figures["verdict"] == "input"
    assert found["verdict"].remedy
    assert found["duration"].figures["wall_seconds"] == 4 * 3600 + 42 * 60 + 47
    assert found["data"].figures["global_batch"] == 1024
    assert "top-1: 43.71 at step 1,252, 46.85 at step 2,504" in found["trained"].sentence


def test_on_the_openseq2seq_log_step_time_curves_and_policy_are_found() -> None:
    run = read_foreign(SEQ2SEQ)
    found = by_key(answers_of_log(SEQ2SEQ))
    assert found["step"].figures["median_seconds"] == pytest.approx(34.9, abs=0.1)
    # The last line is of step 7,500; it is printed every 100 steps.
    assert "it stopped at step 7,500 of 50,000" in found["trained"].sentence
    assert len(found["trained"].figures["training_loss"]) == 76
    assert found["trained"].figures["scores"]["BLEU"] == [[0, 0.9183], [4000, 0.228]]
    assert "teacher forcing" in found["trained"].sentence
    assert found["rate"].figures["peak_rate"] == pytest.approx(9.882e-4, rel=1e-3)
    assert found["rate"].figures["peak_step"] == 8000
    assert (run.world, run.hosts) == (4, ("v100a", "v100b"))
    assert any("--continue_learning" in line for line in heading_of(run))


def test_on_the_openseq2seq_log_a_100_mbit_link_explains_the_step() -> None:
    found = by_key(answers_of_log(SEQ2SEQ, parse_link_speed("100Mbit")))
    traffic = found["traffic"]
    assert traffic.figures["predicted_bytes_per_step"] == pytest.approx(1.5 * 4 * 60_880_896)
    assert traffic.figures["predicted_network_seconds"] == pytest.approx(29.2, abs=0.05)
    assert "the ring all-reduce explains 84 % of the step time" in traffic.sentence
    assert found["verdict"].figures["verdict"] == "network"
    ordered = by_key(answers_of_log(SEQ2SEQ, parse_link_speed("1Gbit")))
    assert "does not explain the step time" in ordered["traffic"].sentence


def test_the_event_file_of_the_same_kind_of_run_says_the_same() -> None:
    printed, logged = read_foreign(IMAGENET), read_foreign(EVENTS)
    assert logged.step == printed.step
    assert logged.step_times.mean_seconds == pytest.approx(
        printed.step_times.mean_seconds, rel=0.01
    )
    last = [run.scores["top-1"].points[-1][1] for run in (printed, logged)]
    assert last[0] == pytest.approx(last[1], abs=0.001)
    found = by_key(answers_of_log(EVENTS))
    assert found["verdict"].figures["verdict"] == "unclear"
    assert found["input"].missing
