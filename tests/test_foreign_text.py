"""Reports on the printed logs of other tools: the PyTorch ImageNet example and OpenSeq2Seq."""

import bz2
import gzip
import json
import lzma
import pprint
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import pytest

from paceline.errors import UserError
from paceline.report.answers.answer import QUESTIONS, Answer
from paceline.report.foreign import is_foreign, read_foreign
from paceline.units import parse_link_speed
from tests.log_answers import answers_of, answers_of_log, heading_of

BATCHES = 100


def by_key(given: list[Answer]) -> dict[str, Answer]:
    return {answer.key: answer for answer in given}


def epoch_lines(
    epoch: int, time: float = 1.0, data: float = 0.9, every: int = 10, first: int = 0
) -> list[str]:
    return [
        f"Epoch: [{epoch}][{index + first:3d}/{BATCHES}]\tTime {time:6.3f} ({time:6.3f})\t"
        f"Data {data:6.3f} ({data:6.3f})\tLoss {5 - index / 100 - epoch:.4e} (4.5000e+00)\t"
        f"Acc@1 {10 + epoch:6.2f} ({10 + epoch:6.2f})\tAcc@5  30.00 ( 30.00)"
        for index in range(0, BATCHES, every)
    ]


def test_lines(epoch: int) -> list[str]:
    return [
        "Test: [ 0/10]\tTime  2.000 ( 2.000)\tLoss 3.0e+00 (3.0e+00)\tAcc@1 20.00 ( 20.00)",
        "Test: [ 9/10]\tTime  1.000 ( 1.500)\tLoss 3.0e+00 (3.0e+00)\tAcc@1 20.00 ( 20.00)",
        f" * Acc@1 {20 + 2.5 * epoch:.3f} Acc@5 50.000",
    ]


test_lines.__test__ = False  # type: ignore[attr-defined]


def imagenet_log(num_epochs: int = 2, time: float = 1.0, data: float = 0.9) -> str:
    lines = ["=> creating model 'resnet50'"]
    for epoch in range(num_epochs):
        lines += [*epoch_lines(epoch, time, data), *test_lines(epoch)]
    return "\n".join(lines) + "\n"


def written(directory: Path, text: str, name: str = "train.log") -> Path:
    path = directory / name
    path.write_bytes(text.encode())
    return path


CONFIG: dict[str, Any] = {
    "batch_size_per_gpu": 256,
    "data_layer_params": {"source_file": "/data/train.en", "target_file": "/data/train.de"},
    "dtype": "mixed",
    "lr_policy_params": {"d_model": 512, "learning_rate": 2.0, "warmup_steps": 8000},
    "max_steps": 50000,
    "num_gpus": 1,
    "print_loss_steps": 100,
    "save_checkpoint_steps": 299998,
    "use_horovod": True,
}
PRINTED_ONLY = (
    ",\n 'lr_policy': <function transformer_policy at 0x7f5e28292d08>,"
    "\n 'optimizer': <class 'tensorflow.contrib.opt.LazyAdamOptimizer'>}"
)


def seq2seq_head(world: int = 4, num_hosts: int = 2) -> list[str]:
    config = pprint.pformat(CONFIG)[:-1] + PRINTED_ONLY
    lines = ["*** Using horovod", "*** Training config:", config]
    lines += [f"*** Building graph in Horovod rank: {rank}" for rank in range(world)]
    lines += ["*** Total trainable parameters: 60000000"]
    lines += [
        "2019-10-19 20:33:58.983533: I tensorflow/core/common_runtime/gpu/gpu_device.cc:1432]"
    ]
    lines += ["name: Tesla V100-PCIE-16GB major: 7 minor: 0 memoryClockRate(GHz): 1.38"]
    for rank in range(world):
        host = f"node{rank * num_hosts // world}"
        lines += [f"{host}:202:276 [0] NCCL INFO comm 0x7f5e rank {rank} nranks {world}"]
    return lines


def seq2seq_steps(begin: int, end: int, seconds: float = 36.0) -> list[str]:
    lines = []
    for step in range(begin, end + 1, 100):
        lines += [f"*** Global step {step}: ***     Train loss: {9 - step / 2000:.4f} "]
        lines += [f"time per step = 0:00:{9.0 if step == 0 else seconds:.3f}"]
        lines += ["***     Train Source[0]:     <s> ▁Global step 99999: loss"]
    return lines


def seq2seq_log(last_step: int = 7500, **head: int) -> str:
    lines = seq2seq_head(**head)
    lines += ["*** Running evaluation on a validation set:"]
    lines += ["***     Validation loss: 9.5201 ", "***     Eval BLUE score: 0.1"]
    lines += seq2seq_steps(0, min(4000, last_step))
    if last_step > 4000:
        lines += ["***     Validation loss: 2.3882 ", "***     Eval BLUE score: 0.228"]
        lines += seq2seq_steps(4100, last_step)
    return "\n".join(lines) + "\n"


def test_a_run_that_waits_for_input_is_found_and_a_remedy_named(tmp_path: Path) -> None:
    found = by_key(answers_of_log(written(tmp_path, imagenet_log())))
    assert found["input"].figures["input_share"] == pytest.approx(0.9)
    assert "90 % of the step is input wait" in found["input"].sentence
    assert found["verdict"].figures["verdict"] == "input"
    assert "--workers" in found["verdict"].remedy
    assert "input.workers=" in found["verdict"].remedy


def test_a_run_that_hardly_waits_for_input_is_not_blamed_on_it(tmp_path: Path) -> None:
    found = by_key(answers_of_log(written(tmp_path, imagenet_log(data=0.02))))
    assert found["input"].sentence.startswith("No: 2.0 % of the step")
    assert found["verdict"].figures["verdict"] == "unclear"
    assert found["verdict"].missing


def test_step_scores_and_losses_are_read_from_printed_progress(tmp_path: Path) -> None:
    run = read_foreign(written(tmp_path, imagenet_log()))
    assert run.step == 2 * BATCHES
    assert run.scores["top-1"].points == [(100, 20.0), (200, 22.5)]
    assert run.training_loss.points[0] == (1, 5.0)
    assert run.training_loss.points[-1] == (191, 3.1)
    assert run.num_parameters == 25_557_032
    assert run.evaluation_seconds == pytest.approx(2 * 10 * 1.5)
    found = by_key(answers_of(run))
    assert found["step"].figures["median_seconds"] == pytest.approx(1.0)
    assert "top-1: 20 at step 100, 22.5 at step 200" in found["trained"].sentence


@pytest.mark.parametrize("first", [0, 1])
def test_lines_counted_from_0_and_from_1_mean_the_same_steps(tmp_path: Path, first: int) -> None:
    lines = "\n".join(epoch_lines(0, first=first)) + "\n"
    run = read_foreign(written(tmp_path, lines))
    assert run.training_loss.points[0][0] == 1
    assert run.step == 91


def test_old_names_of_the_columns_are_understood(tmp_path: Path) -> None:
    run = read_foreign(written(tmp_path, imagenet_log().replace("Acc@", "Prec@")))
    assert run.scores["top-5"].last == (200, 50.0)


def decorated(text: str) -> bytes:
    """As a terminal's recorder or a progress bar leaves it."""
    lines = []
    for line in text.splitlines():
        bar = "".join(f"\r {n}%|███  | {n}/10 [00:01<00:02, 3.1it/s]" for n in range(10))
        lines.append(f"{bar}\r\x1b[K\x1b[1;32m{line}\x1b[0m\r\n")
    return "".join(lines).encode()


@pytest.mark.parametrize("make", [imagenet_log, seq2seq_log])
@pytest.mark.parametrize(
    "dress",
    [
        lambda text: text.replace("\n", "\r\n").encode(),
        lambda text: text.encode("utf-16"),
        lambda text: gzip.compress(text.encode()),
        lambda text: bz2.compress(text.encode()),
        lambda text: lzma.compress(text.encode()),
        lambda text: b"\xff\xfe\x80 not text\n"[2:] + text.encode(),
    ],
    ids=["crlf", "utf-16", "gzip", "bzip2", "xz", "strange bytes"],
)
def test_how_a_log_is_stored_does_not_change_what_it_says(
    tmp_path: Path, make: Any, dress: Any
) -> None:
    plain = answers_of_log(written(tmp_path, make()), parse_link_speed("100Mbit"))
    path = tmp_path / "dressed"
    path.write_bytes(dress(make()))
    assert answers_of_log(path, parse_link_speed("100Mbit")) == plain


def test_colours_and_progress_bars_between_the_lines_do_no_harm(tmp_path: Path) -> None:
    plain = answers_of_log(written(tmp_path, imagenet_log()))
    path = tmp_path / "decorated"
    path.write_bytes(decorated(imagenet_log()))
    assert answers_of_log(path) == plain


@pytest.mark.parametrize("make", [imagenet_log, seq2seq_log])
def test_wherever_a_log_is_torn_no_number_is_read_wrong(tmp_path: Path, make: Any) -> None:
    text = make()
    whole = read_foreign(written(tmp_path, text))
    true = dict(whole.training_loss.points)
    true_scores = {point for curve in whole.scores.values() for point in curve.points}
    end = text.rstrip().rfind("\n", 0, len(text) - 400)
    for cut in range(end, len(text)):
        run = read_foreign(written(tmp_path, text[:cut]))
        assert all(true[step] == value for step, value in run.training_loss.points)
        assert {p for curve in run.scores.values() for p in curve.points} <= true_scores


def test_a_compressed_log_that_was_cut_off_is_read_as_far_as_it_goes(tmp_path: Path) -> None:
    path = tmp_path / "train.log.gz"
    packed = gzip.compress(imagenet_log(num_epochs=40).encode())
    path.write_bytes(packed[: len(packed) * 2 // 3])
    assert 0 < read_foreign(path).step < 40 * BATCHES


def test_processes_that_print_into_one_file_are_counted(tmp_path: Path) -> None:
    lines = ["=> creating model 'resnet50'"]
    for epoch in range(2):
        fast, slow = epoch_lines(epoch, 1.0, 0.2), epoch_lines(epoch, 1.0, 0.4)
        lines += [line for pair in zip(fast, slow, strict=True) for line in pair]
        lines += [test_lines(epoch)[-1]] * 2
    run = read_foreign(written(tmp_path, "\n".join(lines) + "\n"))
    assert run.world == 2
    assert run.step_times.input_share == pytest.approx(0.4)
    assert run.step_times.num_steps == 2 * 91
    assert run.scores["top-1"].num_points == 2
    traffic = by_key(answers_of(run, parse_link_speed("1Gbit")))["traffic"]
    assert traffic.figures["predicted_bytes_per_step"] == pytest.approx(4 * 25_557_032)


def test_processes_whose_buffers_reach_the_file_in_blocks_are_counted(tmp_path: Path) -> None:
    texts = ["\n".join(epoch_lines(0, 1.0, data, every=1)) + "\n" for data in (0.2, 0.4)]
    size = 4096  # ends inside a line, as a full buffer does
    blocks = [text[at : at + size] for at in range(0, len(texts[0]), size) for text in texts]
    run = read_foreign(written(tmp_path, "".join(blocks)))
    assert run.world == 2
    assert run.step == BATCHES
    assert run.step_times.input_share == pytest.approx(0.4, abs=0.01)
    assert not any("resumed" in note or "runs here" in note for note in run.notes)


def test_a_run_that_died_early_is_not_taken_for_a_second_process(tmp_path: Path) -> None:
    dead = [*epoch_lines(0, every=7)[:6], "RuntimeError: CUDA out of memory."]
    run = read_foreign(written(tmp_path, "\n".join(dead) + "\n" + imagenet_log()))
    assert run.world is None
    assert run.step == 2 * BATCHES
    assert run.step_times.num_steps == 2 * 91
    assert any("the others end at step 36" in note for note in run.notes)


def test_a_directory_with_one_log_per_process_is_one_run(tmp_path: Path) -> None:
    for rank, data in enumerate((0.2, 0.4, 0.6)):
        lines = "\n".join([*epoch_lines(0, 1.0, data), *epoch_lines(1, 1.0, data)]) + "\n"
        (tmp_path / "attempt_0" / str(rank)).mkdir(parents=True)
        written(tmp_path / "attempt_0" / str(rank), lines, "stdout.log")
    assert is_foreign(tmp_path)
    run = read_foreign(tmp_path)
    assert run.world == 3
    assert run.step_times.input_share == pytest.approx(0.6)
    assert any("3 files of one run" in note for note in run.notes)


def test_logs_of_different_runs_in_a_directory_are_not_taken_for_processes(tmp_path: Path) -> None:
    written(tmp_path, imagenet_log(num_epochs=1), "a.log")
    written(tmp_path, imagenet_log(num_epochs=2, time=1.5), "b.log")
    written(tmp_path, "nothing of interest\n", "c.log")
    run = read_foreign(tmp_path)
    assert (run.step, run.world) == (2 * BATCHES, None)
    assert any("there are 2 runs here" in note for note in run.notes)


def test_prefixes_of_launchers_before_each_line_do_no_harm(tmp_path: Path) -> None:
    lines = [f"[1,0]<stdout>:{line}" for line in epoch_lines(0)]
    assert read_foreign(written(tmp_path, "\n".join(lines) + "\n")).step == 91


def test_of_several_runs_in_one_file_the_longest_is_told_and_the_others_named(
    tmp_path: Path,
) -> None:
    text = imagenet_log(num_epochs=1) + imagenet_log(num_epochs=3) + imagenet_log(num_epochs=1)
    run = read_foreign(written(tmp_path, text))
    assert run.step == 3 * BATCHES
    assert run.step_times.num_steps == 3 * 91
    assert any("there are 3 runs here" in line for line in heading_of(run))


def test_a_resumed_run_is_one_run_and_says_what_was_done_again(tmp_path: Path) -> None:
    before = [*epoch_lines(0), *test_lines(0), *epoch_lines(1)]
    after = [*epoch_lines(1), *test_lines(1), *epoch_lines(2), *test_lines(2)]
    run = read_foreign(written(tmp_path, "\n".join([*before, *after]) + "\n"))
    assert run.scores["top-1"].points == [(100, 20.0), (200, 22.5), (300, 25.0)]
    steps = [step for step, _ in run.training_loss.points]
    assert steps == sorted(set(steps))
    assert any("resumed at step 101; 90 steps were done again" in note for note in run.notes)
    assert run.step_times.num_steps == 4 * 91


def test_a_loss_that_is_no_number_means_that_the_run_diverged(tmp_path: Path) -> None:
    lines = epoch_lines(0)
    lines[5:] = [
        line.replace("Loss 4", "Loss nan # 4").split("#")[0] + "(nan)" for line in lines[5:]
    ]
    found = by_key(answers_of_log(written(tmp_path, "\n".join(lines) + "\n")))
    assert found["trained"].sentence.startswith("No: the loss is not a number from step 51 on")
    assert found["trained"].figures["state"] == "diverged"
    assert found["trained"].figures["diverged_at_step"] == 51
    json.dumps([answer.figures for answer in found.values()], allow_nan=False)


def test_printed_arguments_tell_what_was_wanted(tmp_path: Path) -> None:
    head = "Namespace(arch='resnet18', workers=1, epochs=90, start_epoch=0, lr=0.1, seed=None)\n"
    body = imagenet_log().replace("=> creating model 'resnet50'\n", "")
    run = read_foreign(written(tmp_path, head + body))
    assert run.num_parameters == 11_689_512
    found = by_key(answers_of(run))
    assert found["trained"].sentence.startswith("No: it stopped at step 200 of 9,000")
    assert "`workers` was 1" in found["verdict"].sentence
    assert not run.rate


def test_what_ended_a_run_is_told(tmp_path: Path) -> None:
    text = (
        imagenet_log() + "Traceback (most recent call last):\nRuntimeError: CUDA out of memory.\n"
    )
    run = read_foreign(written(tmp_path, text))
    assert (
        "note: it ended with: RuntimeError: CUDA out of memory. (it ran out of memory)"
        in heading_of(run)
    )


def test_the_number_of_batches_gives_the_batch_for_the_real_imagenet(tmp_path: Path) -> None:
    text = "\n".join(epoch_lines(0)).replace("/100]", "/5005]") + "\n"
    found = by_key(answers_of_log(written(tmp_path, text)))
    assert found["data"].figures["global_batch"] == 256
    other = by_key(answers_of_log(written(tmp_path, imagenet_log())))
    assert "global_batch" not in other["data"].figures


def test_a_step_of_openseq2seq_is_timed_without_its_start_up(tmp_path: Path) -> None:
    run = read_foreign(written(tmp_path, seq2seq_log()))
    assert run.start_up_seconds == pytest.approx(900)
    assert run.step_times.mean_seconds == pytest.approx(36)
    assert run.step_times.slowest is not None
    assert run.step_times.slowest[1] == 36
    duration = by_key(answers_of(run))["duration"]
    assert duration.figures["wall_seconds"] == pytest.approx(900 + 36 * 7500)


def test_a_run_that_stopped_early_says_of_how_many_steps(tmp_path: Path) -> None:
    trained = by_key(answers_of_log(written(tmp_path, seq2seq_log())))["trained"]
    assert trained.sentence.startswith("No: it stopped at step 7,500 of 50,000, 15 % of what")
    assert trained.figures["training_loss"][-1] == [7500, 5.25]
    assert trained.figures["scores"]["BLEU"] == [[0, 0.1], [4000, 0.228]]
    assert trained.figures["validation_loss"] == [[0, 9.5201], [4000, 2.3882]]


def test_a_score_that_is_best_before_training_is_doubted(tmp_path: Path) -> None:
    text = seq2seq_log().replace("score: 0.1\n", "score: 0.9183\n")
    trained = by_key(answers_of_log(written(tmp_path, text)))["trained"]
    assert "The 0.9183 at step 0, before any training, cannot be real" in trained.sentence
    honest = by_key(answers_of_log(written(tmp_path, seq2seq_log())))["trained"]
    assert "cannot be real" not in honest.sentence


def test_the_policy_of_the_rate_is_told_from_the_printed_configuration(tmp_path: Path) -> None:
    rate = by_key(answers_of_log(written(tmp_path, seq2seq_log())))["rate"]
    assert rate.figures["peak_step"] == 8000
    assert rate.figures["peak_rate"] == pytest.approx(2 * 512**-0.5 * 8000**-0.5)
    assert "inverse square root" in rate.sentence
    assert "before the peak: the rate only rose" in rate.sentence
    later = by_key(answers_of_log(written(tmp_path, seq2seq_log(20000))))["rate"]
    assert "63 % of the peak" in later.sentence


def test_the_ring_all_reduce_explains_the_step_on_a_slow_link(tmp_path: Path) -> None:
    path = written(tmp_path, seq2seq_log())
    found = by_key(answers_of_log(path, parse_link_speed("100Mbit")))
    # 2 x 3/4 x 4 bytes x 60 M = 360 MB, which take 28.8 s at 100 Mbit/s.
    assert found["traffic"].figures["predicted_bytes_per_step"] == pytest.approx(360e6)
    assert found["traffic"].figures["explained_share"] == pytest.approx(0.8)
    assert found["traffic"].sentence == (
        "A ring all-reduce over 4 processes sends 2 x 3/4 of the 240.0 MB of gradients (60.0 M "
        "parameters x 4 bytes), 360.0 MB, through each host's link in every step; at 100 Mbit/s "
        "that takes 28.8 s of the 36.0 s of a step: the ring all-reduce explains 80 % of the step "
        "time."
    )
    assert found["verdict"].figures["verdict"] == "network"
    assert found["verdict"].remedy
    assert found["network"].figures["without_network_seconds"] == pytest.approx(7.2)


def test_on_a_fast_link_the_ring_all_reduce_is_not_blamed(tmp_path: Path) -> None:
    path = written(tmp_path, seq2seq_log())
    found = by_key(answers_of_log(path, parse_link_speed("10Gbit")))
    assert "does not explain the step time" in found["traffic"].sentence
    assert found["network"].sentence.startswith("No:")
    assert found["verdict"].figures["verdict"] == "unclear"


def test_a_link_that_is_too_slow_to_be_true_is_refused(tmp_path: Path) -> None:
    path = written(tmp_path, seq2seq_log())
    traffic = by_key(answers_of_log(path, parse_link_speed("10Mbit")))["traffic"]
    assert "the link must be faster than 10 Mbit/s" in traffic.sentence


def test_without_a_link_the_report_asks_for_it_and_gives_the_bound(tmp_path: Path) -> None:
    found = by_key(answers_of_log(written(tmp_path, seq2seq_log())))
    assert "--link" in found["network"].missing
    assert "80 Mbit/s, and it cannot have been slower" in found["traffic"].sentence
    assert found["verdict"].figures["verdict"] == "unclear"


def test_processes_on_one_host_send_nothing_over_a_network(tmp_path: Path) -> None:
    path = written(tmp_path, seq2seq_log(world=4, num_hosts=1))
    found = by_key(answers_of_log(path, parse_link_speed("100Mbit")))
    assert found["traffic"].sentence == (
        "All 4 processes ran on one host, so no gradients crossed a network."
    )
    assert found["verdict"].figures["verdict"] == "unclear"


def test_a_second_start_that_failed_while_the_first_went_on_does_not_end_it(
    tmp_path: Path,
) -> None:
    again = [*seq2seq_head(), "OSError: Log directory is not empty."]
    lines = [*seq2seq_head(), *seq2seq_steps(0, 3000), *again, *seq2seq_steps(3100, 5000)]
    run = read_foreign(written(tmp_path, "\n".join(lines) + "\n"))
    assert run.step == 5000
    assert run.training_loss.num_points == 51
    assert run.hosts == ("node0", "node1")
    assert any("Log directory is not empty" in note for note in run.notes)


def test_a_run_started_anew_from_step_0_is_another_run(tmp_path: Path) -> None:
    text = seq2seq_log(2000) + seq2seq_log(6000)
    run = read_foreign(written(tmp_path, text))
    assert run.step == 6000
    assert run.training_loss.num_points == 61
    assert any("the others end at step 2,000" in note for note in run.notes)


def test_a_run_that_would_never_save_is_warned_of(tmp_path: Path) -> None:
    checkpoint = by_key(answers_of_log(written(tmp_path, seq2seq_log())))["checkpoint"]
    assert "every 299,998 steps, which is more than the whole run has" in checkpoint.sentence
    assert checkpoint.figures["predicted_bytes"] == 14 * 60_000_000
    assert "save_checkpoint_steps" in checkpoint.remedy


def test_the_price_of_a_host_gives_the_cost(tmp_path: Path) -> None:
    path = written(tmp_path, seq2seq_log())
    cost = by_key(answers_of_log(path, None, 2.0))["cost"]
    assert cost.figures["cost"] == pytest.approx(2 * 2.0 * (900 + 36 * 7500) / 3600)
    assert "--price" in by_key(answers_of_log(path))["cost"].missing


@pytest.mark.parametrize("make", [imagenet_log, seq2seq_log])
def test_every_question_is_answered_or_says_what_is_missing(tmp_path: Path, make: Any) -> None:
    given = answers_of_log(written(tmp_path, make()))
    assert [answer.key for answer in given] == list(QUESTIONS)
    assert [answer.question for answer in given] == list(QUESTIONS.values())
    for answer in given:
        assert answer.sentence.endswith(".")
        assert answer.figures or answer.missing
    json.dumps([answer.figures for answer in given], allow_nan=False)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"step 1 loss 2.0\nstep 2 loss 1.9\n",
        bytes(range(256)) * 100,
        b"\x1f\x8b\x08\x00broken",
    ],
    ids=["empty", "unknown", "binary", "broken gzip"],
)
def test_a_file_that_no_known_tool_wrote_is_refused_with_what_can_be_read(
    tmp_path: Path, content: bytes
) -> None:
    path = tmp_path / "something"
    path.write_bytes(content)
    with pytest.raises(UserError) as caught:
        read_foreign(path)
    assert str(path) in caught.value.what
    for name in ("paceline train", "TensorBoard", "OpenSeq2Seq", "PyTorch ImageNet example"):
        assert name in caught.value.fix


def test_a_run_directory_of_our_own_is_not_foreign(tmp_path: Path) -> None:
    (tmp_path / "recipe.yaml").write_text("workload: cifar10\n")
    (tmp_path / "events.out.tfevents.1.host").write_bytes(b"")
    assert not is_foreign(tmp_path)
    assert not is_foreign(tmp_path / "nothing here")
    assert is_foreign(written(tmp_path, imagenet_log()))


def test_the_command_line_reports_on_a_log_of_another_tool(tmp_path: Path) -> None:
    path = written(tmp_path, seq2seq_log(), "nohup.out")
    page = tmp_path / "page.html"
    done = on_the_command_line(str(path), "--link", "100Mbit", "--html", str(page))
    assert (done.returncode, done.stderr) == (0, f"wrote {page}\n")
    text = page.read_text()
    assert "the ring all-reduce explains 80 % of the step time" in text
    assert text.count("<svg") >= 4
    told = on_the_command_line(str(path), "--link", "100Mbit")
    assert "stopped at step 7,500 of 50,000" in " ".join(told.stdout.split())


def test_the_command_line_refuses_a_strange_file_in_one_message(tmp_path: Path) -> None:
    done = on_the_command_line(str(written(tmp_path, "hello\n")))
    assert done.returncode == 2
    assert done.stderr.startswith("error: ")
    assert "TensorBoard" in done.stderr
    assert "Traceback" not in done.stderr


def on_the_command_line(*words: str) -> "subprocess.CompletedProcess[str]":
    command = [sys.executable, "-m", "paceline.cli", "report", *words]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)


def test_a_file_of_any_size_is_read_in_little_memory(tmp_path: Path) -> None:
    path = tmp_path / "long.log"
    with path.open("w") as file:
        file.write(imagenet_log(num_epochs=1))
        for _ in range(40):
            file.write("x" * 1_000_000)  # a line that never ends
        file.write("\n" + "\n".join(epoch_lines(1)) + "\n")
    tracemalloc.start()
    try:
        run = read_foreign(path)
        peak_bytes = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert run.step == 191
    assert peak_bytes < 16_000_000


def test_reading_a_log_imports_neither_torch_nor_tensorflow(tmp_path: Path) -> None:
    path = written(tmp_path, imagenet_log())
    program = (
        "import sys; from pathlib import Path; from paceline.report.facts.facts import Options; "
        "from paceline.report.report import open_report; "
        f"open_report([Path({str(path)!r})], Options()).html(); "
        "print(sorted({'torch', 'tensorflow'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True, timeout=60
    )
    assert done.stdout.strip() == "[]"
