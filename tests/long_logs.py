"""Logs of forty lines in the shape of every tool that prints one, for changing them at random.

No two lines have the same loss, so that it shows where a line got to.
"""

import json
from collections.abc import Callable, Iterator

NUM_LINES = 40
EVALUATE_EVERY = 10


def loss_at(place: int) -> float:
    return round(9 - place / 10 - place / 1000, 4)


def clock(second: int) -> str:
    return f"{second // 3600 + 10:02d}:{second // 60 % 60:02d}:{second % 60:02d}"


def _hugging_face() -> Iterator[str]:
    yield "  Num Epochs = 4"
    yield "  Total optimization steps = 400"
    for n in range(1, NUM_LINES + 1):
        yield f"{{'loss': {loss_at(n)}, 'learning_rate': 1e-05, 'epoch': {n / 10}}}"
        if n % EVALUATE_EVERY == 0:
            yield f"{{'eval_loss': {loss_at(n) + 1}, 'eval_runtime': 2.0, 'epoch': {n / 10}}}"


def _nanogpt() -> Iterator[str]:
    yield "number of parameters: 10.65M"
    for n in range(1, NUM_LINES + 1):
        yield f"iter {10 * n}: loss {loss_at(n)}, time {50 + n / 10:.2f}ms, mfu 10.00%"


def _llm_c() -> Iterator[str]:
    for n in range(1, NUM_LINES + 1):
        yield f"step {n:4d}/40 | loss {loss_at(n)} (+nanz)| lr 1.00e-06 | 500.00 ms | 9000 tok/s"
        if n % EVALUATE_EVERY == 0:
            yield f"val loss {loss_at(n) + 1}"


def _torchtitan() -> Iterator[str]:
    for n in range(1, NUM_LINES + 1):
        stamp = f"[titan] 2025-01-01 {clock(20 * n)},500 - root - INFO - "
        yield f"{stamp}step: {10 * n:2d}  loss: {loss_at(n)}  tps: 5,000  mfu: 34.0%"


def _megatron() -> Iterator[str]:
    for n in range(1, NUM_LINES + 1):
        yield (
            f" iteration {10 * n:8d}/ 400 | elapsed time per iteration (ms): 500.0 | "
            f"learning rate: 1.0E-04 | global batch size: 16 | lm loss: {loss_at(n):.6E} |"
        )


def _timm() -> Iterator[str]:
    for n in range(NUM_LINES):
        epoch, index = divmod(n, 20)
        yield (
            f"Train: {epoch} [{5 * index:4d}/100 ({5 * index:3d}%)]  Loss: {loss_at(n)} (5.0)  "
            f"Time: 0.500s,  64.00/s  (0.500s,  64.00/s)  LR: 1.000e-03  Data: 0.100 (0.100)"
        )


def _openmmlab() -> Iterator[str]:
    for n in range(NUM_LINES):
        epoch, index = divmod(n, 20)
        yield (
            f"2021-01-01 {clock(25 * n)},000 - mmdet - INFO - Epoch [{epoch + 1}]"
            f"[{50 * index + 50}/1000]\tlr: 1.000e-03, eta: 0:02:00, time: 0.500, "
            f"data_time: 0.100, memory: 3901, loss: {loss_at(n)}"
        )


def _openmmlab_json() -> Iterator[str]:
    for n in range(1, NUM_LINES + 1):
        line = {"mode": "train", "epoch": 1, "iter": 50 * n, "lr": 0.01, "data_time": 0.1}
        yield json.dumps(line | {"loss": loss_at(n), "time": 0.5})


def _metric_logger() -> Iterator[str]:
    for n in range(NUM_LINES):
        epoch, index = divmod(n, 20)
        yield (
            f"Epoch: [{epoch}]  [{10 * index:3d}/200]  eta: 0:01:20  lr: 0.000100  "
            f"loss: {loss_at(n)} (5.0)  time: 0.5000  data: 0.1000  max mem: 2547"
        )


def _detr_json() -> Iterator[str]:
    for n in range(NUM_LINES):
        yield json.dumps({"train_lr": 1e-4, "train_loss": loss_at(n), "test_acc1": n, "epoch": n})


def _json_lines() -> Iterator[str]:
    for n in range(1, NUM_LINES + 1):
        yield json.dumps({"step": 10 * n, "loss": loss_at(n), "eval/loss": loss_at(n) + 1})


def _keras() -> Iterator[str]:
    for n in range(1, NUM_LINES + 1):
        yield f"Epoch {n}/{NUM_LINES}"
        yield f"100/100 [=====] - 10s 95ms/step - loss: {loss_at(n)} - val_loss: {loss_at(n) + 1}"


def _mxnet() -> Iterator[str]:
    yield "INFO:root:Namespace(batch_size=32, num_epochs=2, num_gpus=4)"
    for n in range(NUM_LINES):
        epoch, index = divmod(n, 20)
        yield (
            f"INFO:root:Epoch[{epoch}] Batch [{5 * index + 4}]/[100]\tSpeed: 640.0 samples/sec\t"
            f"loss={loss_at(n)}\tlr=0.1"
        )


def _fairseq() -> Iterator[str]:
    for n in range(1, NUM_LINES + 1):
        yield (
            f"2021-01-01 {clock(40 * n)} | INFO | train_inner | epoch 001: {100 * n} / 4000 "
            f"loss={loss_at(n)}, wps=20000, ups=2.5, wpb=8000, num_updates={100 * n}, lr=1e-05"
        )


def _marian() -> Iterator[str]:
    yield "[2020-01-01 10:00:00] [config] disp-freq: 100"
    for n in range(1, NUM_LINES + 1):
        yield (
            f"[2020-01-01 {clock(50 * n)}] Ep. 1 : Up. {100 * n} : Sen. {5000 * n:,} : "
            f"Cost {loss_at(n)} : Time 50.00s : 10000.00 words/s : L.r. 1.0000e-05"
        )


def _opennmt() -> Iterator[str]:
    for n in range(1, NUM_LINES + 1):
        yield (
            f"[2020-01-01 {clock(50 * n)},000 INFO] Step {100 * n}/4000; acc: 4.00; ppl: 148.41; "
            f"xent: {loss_at(n)}; lr: 0.00100; 9000/10000 tok/s; {50 * n} sec"
        )


def _joeynmt() -> Iterator[str]:
    for n in range(1, NUM_LINES + 1):
        yield (
            f"2021-01-01 {clock(20 * n)},000 - INFO - joeynmt.training - Epoch   1, "
            f"Step: {100 * n}, Batch Loss: {loss_at(n)}, Tokens per Sec: 10000, Lr: 0.000300"
        )


def _sockeye() -> Iterator[str]:
    for n in range(1, NUM_LINES + 1):
        head = f"[INFO:sockeye.training] Checkpoint [{n}]\t"
        yield f"{head}Updates={1000 * n} Epoch=1 Samples=64000 Time-cost=200.000 Updates/sec=5.000"
        yield f"{head}Train-perplexity={2 + n / 10}"


def _bars() -> Iterator[str]:
    for n in range(1, NUM_LINES + 1):
        yield f"Train:  10%|█  | {10 * n}/400 [{n // 6:02d}:{10 * n % 60:02d}<10:00,  1.00it/s, loss={loss_at(n)}]"  # noqa: E501


def _unknown() -> Iterator[str]:
    for n in range(1, NUM_LINES + 1):
        yield f"2025-03-01 {clock(5 * n)} INFO step {10 * n}/400 loss={loss_at(n)} lr=0.001"


LONG_LOGS: dict[str, Callable[[], Iterator[str]]] = {
    "hugging face": _hugging_face,
    "nanoGPT": _nanogpt,
    "llm.c": _llm_c,
    "torchtitan": _torchtitan,
    "Megatron": _megatron,
    "timm": _timm,
    "mmdetection": _openmmlab,
    "mmdetection, JSON": _openmmlab_json,
    "MetricLogger": _metric_logger,
    "DETR, JSON": _detr_json,
    "JSON lines": _json_lines,
    "Keras": _keras,
    "MXNet": _mxnet,
    "fairseq": _fairseq,
    "Marian": _marian,
    "OpenNMT-py": _opennmt,
    "JoeyNMT": _joeynmt,
    "Sockeye": _sockeye,
    "bars": _bars,
    "unknown": _unknown,
}
