"""Logs in the shapes that other tools print, with the figures that must come out of them.

Each was computed by hand from the lines; the comments say how.
"""

from dataclasses import dataclass, field

HF = """***** Running training *****
  Num examples = 3,000
  Num Epochs = 3
  Instantaneous batch size per device = 8
  Total train batch size (w. parallel, distributed & accumulation) = 32
  Gradient Accumulation steps = 2
  Total optimization steps = 300
  Number of trainable parameters = 66,955,010
{'loss': 0.9, 'grad_norm': 1.9, 'learning_rate': 5e-05, 'epoch': 0.5}
{'loss': 0.7, 'grad_norm': 1.8, 'learning_rate': 4e-05, 'epoch': 1.0}
{'eval_loss': 0.6, 'eval_accuracy': 0.81, 'eval_runtime': 3.5, 'epoch': 1.0}
{'loss': 0.5, 'grad_norm': 1.7, 'learning_rate': 3e-05, 'epoch': 1.5}
{'loss': 0.4, 'grad_norm': 1.6, 'learning_rate': 2e-05, 'epoch': 2.0}
{'eval_loss': 0.5, 'eval_accuracy': 0.85, 'eval_runtime': 6.5, 'epoch': 2.0}
{'loss': '0.35', 'grad_norm': '1.5', 'learning_rate': '1e-05', 'epoch': '2.5'}
{'loss': '0.3', 'grad_norm': '1.5', 'learning_rate': '0', 'epoch': '3'}
{'train_runtime': 130.0, 'train_samples_per_second': 69.2, 'train_loss': 0.5, 'epoch': 3.0}
"""

NANOGPT = """number of parameters: 10.65M
tokens per iteration will be: 16,384
step 0: train loss 4.2874, val loss 4.2823
iter 0: loss 4.2649, time 31000.00ms, mfu -100.00%
iter 10: loss 3.1000, time 40.00ms, mfu 10.00%
iter 20: loss 2.7000, time 60.00ms, mfu 11.00%
step 30: train loss 2.4000, val loss 2.5000
iter 30: loss 2.4500, time 9000.00ms, mfu 11.50%
iter 40: loss 2.3000, time 50.00ms, mfu 12.00%
"""

LLM_C = """step    1/100 | loss 11.0 (+nanz)| norm 15.3 (+nanz)| lr 1.00e-06 | 900.00 ms | 30.0% bf16 MFU | 500000 tok/s
step    2/100 | loss 10.0 (+nanz)| norm 14.3 (+nanz)| lr 2.00e-06 | 500.00 ms | 54.0% bf16 MFU | 1000000 tok/s
val loss 9.500000
step    3/100 | loss 9.0 (+nanz)| norm 13.3 (+nanz)| lr 3.00e-06 | 500.00 ms | 54.0% bf16 MFU | 1000000 tok/s
"""  # noqa: E501

MODDED = """step:0/100 val_loss:10.8 train_time:0ms step_avg:nanms
step:1/100 train_loss:10.5 train_time:500ms step_avg:500.00ms
step:50/100 train_loss:6.0 train_time:4000ms step_avg:100.00ms
step:50/100 val_loss:5.9 train_time:4000ms step_avg:100.00ms
step:100/100 train_loss:4.0 train_time:9000ms step_avg:100.00ms
step:100/100 val_loss:3.9 train_time:9000ms step_avg:100.00ms
"""

TITAN = "".join(
    f"[rank0]:[titan] 2025-01-01 12:{second // 60:02d}:{second % 60:02d},500 - root - INFO - "
    f"step: {step:2d}  loss: {8 - step / 100:.4f}  grad_norm:  1.2000  memory: 40.00GiB(50.00%)  "
    f"tps: {tps}  tflops: 345.20  mfu: {mfu}%\n"
    for step, second, tps, mfu in (
        (1, 0, "1,000", "5.0"),
        (10, 18, "5,000", "34.0"),
        (20, 38, "5,000", "34.5"),
        (30, 58, "5,000", "35.0"),
    )
)

MEGATRON = """using world size: 8, data-parallel size: 8
  num_workers ..................................... 2
  seq_length ...................................... 1024
 > number of parameters on (tensor, pipeline) model parallel rank (0, 0): 345000000
 [2025-04-13 23:41:12] iteration       10/     500 | consumed samples:          160 | elapsed time per iteration (ms): 1000.0 | learning rate: 0.000000E+00 | global batch size:    16 | loss scale: 8388608.0 | number of skipped iterations:  10 |
 [2025-04-13 23:41:20] iteration       20/     500 | consumed samples:          320 | elapsed time per iteration (ms): 800.0 | learning rate: 4.000000E-05 | global batch size:    16 | lm loss: 1.072453E+01 | grad norm: 3.874 |
 validation loss at iteration 20 | lm loss value: 1.050000E+01 | lm loss PPL: 3.631550E+04 |
 [2025-04-13 23:41:38] iteration       30/     500 | consumed samples:          480 | elapsed time per iteration (ms): 600.0 | learning rate: 9.000000E-05 | global batch size:    16 | lm loss: 1.000000E+01 | grad norm: 3.0 |
"""  # noqa: E501

TIMM = """Process 0, total 2, device cuda:0.
Model resnet50 created, param count:25557032
Scheduled epochs: 2
Train: 0 [   0/100 (  0%)]  Loss: 6.9 (6.90)  Time: 2.000s,   64.00/s  (2.000s,   64.00/s)  LR: 1.000e-03  Data: 1.500 (1.500)
Train: 0 [  99/100 (100%)]  Loss: 5.0 (5.90)  Time: 0.400s,  320.00/s  (0.500s,  256.00/s)  LR: 2.000e-03  Data: 0.100 (0.200)
Test: [   0/9]  Time: 1.000 (1.000)  Loss:  4.9 (4.9)  Acc@1: 20.0 (20.0)  Acc@5: 40.0 (40.0)
Test: [   9/9]  Time: 0.100 (0.200)  Loss:  4.5 (4.4)  Acc@1: 25.0 (30.5)  Acc@5: 45.0 (60.5)
Train: 1 [   0/100 (  0%)]  Loss: 4.9 (4.90)  Time: 1.000s,  128.00/s  (1.000s,  128.00/s)  LR: 2.000e-03  Data: 0.800 (0.800)
Train: 1 [  99/100 (100%)]  Loss: 4.0 (4.40)  Time: 0.200s,  640.00/s  (0.300s,  426.67/s)  LR: 1.000e-03  Data: 0.010 (0.050)
Test: [   9/9]  Time: 0.100 (0.200)  Loss:  4.0 (3.9)  Acc@1: 35.0 (40.5)  Acc@5: 55.0 (70.5)
"""  # noqa: E501

MMDET = """2021-01-01 12:00:00,000 - mmdet - INFO - data = dict(samples_per_gpu=2, workers_per_gpu=4)
2021-01-01 12:00:00,000 - mmdet - INFO - workflow: [('train', 1)], max: 2 epochs
2021-01-01 12:00:50,000 - mmdet - INFO - Epoch [1][50/100]\tlr: 1.000e-03, eta: 0:02:00, time: 1.000, data_time: 0.600, memory: 3901, loss_cls: 0.5, loss: 1.7
2021-01-01 12:01:40,000 - mmdet - INFO - Epoch [1][100/100]\tlr: 2.000e-03, eta: 0:01:40, time: 1.000, data_time: 0.400, memory: 3901, loss_cls: 0.4, loss: 1.2
2021-01-01 12:02:10,000 - mmdet - INFO - Epoch(val) [1][40]\tbbox_mAP: 0.2500, bbox_mAP_50: 0.4000
2021-01-01 12:03:00,000 - mmdet - INFO - Epoch [2][50/100]\tlr: 2.000e-03, eta: 0:00:50, time: 1.000, data_time: 0.400, memory: 3901, loss_cls: 0.3, loss: 1.0
2021-01-01 12:03:50,000 - mmdet - INFO - Epoch [2][100/100]\tlr: 2.000e-04, eta: 0:00:00, time: 1.000, data_time: 0.600, memory: 3901, loss_cls: 0.2, loss: 0.8
2021-01-01 12:04:20,000 - mmdet - INFO - Epoch(val) [2][40]\tbbox_mAP: 0.3500, bbox_mAP_50: 0.5000
"""  # noqa: E501

MMENGINE = """2022/11/01 12:00:00 - mmengine - INFO - Iter(train) [   50/100]  base_lr: 1.0000e-02 lr: 1.0000e-02  eta: 0:00:25  time: 0.5000  data_time: 0.1000  memory: 3456  loss: 2.0000  decode.acc_seg: 50.0
2022/11/01 12:00:25 - mmengine - INFO - Iter(train) [  100/100]  base_lr: 1.0000e-02 lr: 5.0000e-03  eta: 0:00:00  time: 0.5000  data_time: 0.1000  memory: 3456  loss: 1.0000  decode.acc_seg: 60.0
2022/11/01 12:00:40 - mmengine - INFO - Iter(val) [10/10]    aAcc: 70.0000  mIoU: 40.0000  mAcc: 50.0000
"""  # noqa: E501

DETR = """Namespace(batch_size=2, epochs=2, num_workers=2, world_size=8)
number of params: 41302368
Epoch: [0]  [ 0/40]  eta: 0:01:20  lr: 0.000100  class_error: 100.00  loss: 40.0 (40.0)  time: 2.0000  data: 1.0000  max mem: 2547
Epoch: [0]  [20/40]  eta: 0:00:20  lr: 0.000100  class_error: 90.00  loss: 30.0 (35.0)  time: 1.0000  data: 0.2000  max mem: 2547
Epoch: [0]  [39/40]  eta: 0:00:00  lr: 0.000100  class_error: 80.00  loss: 20.0 (30.0)  time: 1.0000  data: 0.2000  max mem: 2547
Epoch: [0] Total time: 0:00:44 (1.1000 s / it)
Averaged stats: lr: 0.000100  class_error: 80.00  loss: 20.0 (30.0)
Test:  [ 0/10]  eta: 0:00:10  class_error: 70.0  loss: 19.0 (19.0)  time: 1.0000  data: 0.5000  max mem: 2547
Test: Total time: 0:00:06 (0.6000 s / it)
 Average Precision  (AP) @[ IoU=0.50:0.95 | area=   all | maxDets=100 ] = 0.150
"""  # noqa: E501

KERAS = """Epoch 1/2
100/100 [==============================] - ETA: 0s - loss: 1.5000 - accuracy: 0.4500
100/100 [==============================] - 12s 95ms/step - loss: 1.5000 - accuracy: 0.4500 - val_loss: 1.2000 - val_accuracy: 0.5500
Epoch 2/2
 50/100 [==============>...............] - ETA: 4s - loss: 1.1000 - accuracy: 0.6000
100/100 [==============================] - 10s 85ms/step - loss: 1.0000 - accuracy: 0.6500 - val_loss: 1.1000 - val_accuracy: 0.6000
"""  # noqa: E501

KERAS_3 = """Epoch 1/1
100/100 ━━━━━━━━━━━━━━━━━━━━ 12s 100ms/step - accuracy: 0.4500 - loss: 1.5000 - val_accuracy: 0.5500 - val_loss: 1.2000
"""  # noqa: E501

MXNET = """INFO:root:Namespace(batch_size=32, lr=0.1, num_epochs=2, num_gpus=4, num_workers=8)
INFO:root:Epoch[0] Batch [49]\tSpeed: 1280.000000 samples/sec\taccuracy=0.10\tlr=0.100000
INFO:root:Epoch[0] Batch [99]\tSpeed: 640.000000 samples/sec\taccuracy=0.20\tlr=0.100000
INFO:root:[Epoch 0] speed: 853 samples/sec\ttime cost: 15.000000
INFO:root:[Epoch 0] validation: err-top1=0.700000 err-top5=0.400000
INFO:root:Epoch[1] Batch [49]\tSpeed: 1280.000000 samples/sec\taccuracy=0.30\tlr=0.010000
INFO:root:Epoch[1] Batch [99]\tSpeed: 1280.000000 samples/sec\taccuracy=0.40\tlr=0.010000
INFO:root:[Epoch 1] speed: 1280 samples/sec\ttime cost: 10.000000
INFO:root:[Epoch 1] validation: err-top1=0.600000 err-top5=0.300000
"""

FAIRSEQ = """2021-01-01 12:00:00 | INFO | fairseq_cli.train | num. model params: 60,000,000 (num. trained: 60,000,000)
2021-01-01 12:00:00 | INFO | fairseq_cli.train | training on 8 devices (GPUs/TPUs)
2021-01-01 12:01:00 | INFO | train_inner | epoch 001:    100 / 200 loss=10.2, nll_loss=9.9, ppl=955, wps=20000, ups=2.5, wpb=8000, bsz=250, num_updates=100, lr=1.2e-05, gnorm=2.3, train_wall=40, wall=60
2021-01-01 12:01:40 | INFO | train_inner | epoch 001:    200 / 200 loss=9.2, nll_loss=8.9, ppl=477, wps=20000, ups=2.5, wpb=8000, bsz=250, num_updates=200, lr=2.4e-05, gnorm=2.0, train_wall=40, wall=100
2021-01-01 12:02:00 | INFO | valid | epoch 001 | valid on 'valid' subset | loss 8.5 | nll_loss 8.1 | ppl 274 | wps 60000 | wpb 5000 | bsz 200 | num_updates 200 | bleu 3.5
2021-01-01 12:02:01 | INFO | fairseq_cli.train | done training in 130.5 seconds
"""  # noqa: E501

MARIAN = """[2020-01-01 12:00:00] [config] disp-freq: 100
[2020-01-01 12:01:00] Ep. 1 : Up. 100 : Sen. 5,000 : Cost 9.5 : Time 50.00s : 10000.00 words/s : L.r. 1.0000e-05
[2020-01-01 12:01:50] Ep. 1 : Up. 200 : Sen. 10,000 : Cost 8.5 * 1,606,009 @ 2,847 after 1,606,009 : Time 30.00s : 20000.00 words/s : L.r. 2.0000e-05
[2020-01-01 12:02:10] [valid] Ep. 1 : Up. 200 : ce-mean-words : 4.5 : new best
[2020-01-01 12:02:20] [valid] Ep. 1 : Up. 200 : bleu : 12.5 : new best
[2020-01-01 12:02:21] Training finished
"""  # noqa: E501

OPENNMT = """[2020-01-01 12:00:00,000 INFO]  * number of parameters: 52680174
[2020-01-01 12:00:50,000 INFO] Step 100/400; acc:   4.00; ppl: 148.41; xent: 5.00; lr: 0.00100; 9000/10000 tok/s;     50 sec
[2020-01-01 12:01:20,000 INFO] Step 200/400; acc:  10.00; ppl: 54.60; xent: 4.00; lr: 0.00200; 9000/10000 tok/s;     80 sec
[2020-01-01 12:01:40,000 INFO] Validation perplexity: 20.0855
[2020-01-01 12:01:40,000 INFO] Validation accuracy: 35.5
[2020-01-01 12:02:10,000 INFO] Step 300/400; acc:  15.00; ppl: 20.09; xent: 3.00; lr: 0.00200; 9000/10000 tok/s;    130 sec
[2020-01-01 12:02:30,000 INFO] Step 400/400; acc:  18.00; ppl: 7.39; xent: 2.00; lr: 0.00100; 9000/10000 tok/s;    150 sec
"""  # noqa: E501

JOEY = """2021-01-01 12:00:00,000 - INFO - joeynmt.model - Total params: 12223488
2021-01-01 12:00:10,000 - INFO - joeynmt.training - Epoch   1, Step:      100, Batch Loss:     5.500000, Tokens per Sec:    10000, Lr: 0.000300
2021-01-01 12:00:30,000 - INFO - joeynmt.training - Epoch   1, Step:      200, Batch Loss:     4.500000, Tokens per Sec:    10000, Lr: 0.000300
2021-01-01 12:00:45,000 - INFO - joeynmt.training - Validation result (greedy) at epoch   1, step      200: bleu:  12.50, loss: 13479.5, ppl:  7.3891, duration: 15.0000s
2021-01-01 12:01:05,000 - INFO - joeynmt.training - Epoch   1, Step:      300, Batch Loss:     3.500000, Tokens per Sec:    10000, Lr: 0.000200
"""  # noqa: E501

SOCKEYE = """[INFO:sockeye.training] Epoch[0] Batch [500]\tSpeed: 400.00 samples/sec 10000.00 tokens/sec 5.00 updates/sec\tperplexity=100.0
[INFO:sockeye.training] Checkpoint [1]\tUpdates=1000 Epoch=1 Samples=64000 Time-cost=200.000 Updates/sec=5.000
[INFO:sockeye.training] Checkpoint [1]\tTrain-perplexity=54.598150
[INFO:sockeye.training] Checkpoint [1]\tValidation-perplexity=20.085537
[INFO:sockeye.training] Checkpoint [2]\tUpdates=2000 Epoch=2 Samples=128000 Time-cost=250.000 Updates/sec=4.000
[INFO:sockeye.training] Checkpoint [2]\tTrain-perplexity=20.085537
[INFO:sockeye.training] Checkpoint [2]\tValidation-perplexity=7.389056
"""  # noqa: E501

BARS = "".join(
    f"Epoch {epoch}: {done:3d}%|████      | {done}/100 "
    f"[00:{done // 5:02d}<00:10,  5.00it/s, loss={2 - epoch - done / 200:.3f}, v_num=0]\r"
    for epoch in (0, 1)
    for done in (50, 100)
)

UNKNOWN = "".join(
    f"2025-03-01 08:00:{5 * n:02d} INFO epoch 1 step {10 * n}/100 loss={3 - n / 10:.2f} lr=0.001\n"
    for n in range(1, 11)
)


@dataclass(frozen=True)
class Shape:
    """A log and what must be read from it; only what is named is compared."""

    text: str
    tool: str
    step: int
    loss: tuple[tuple[int, float], ...] = ()
    """First and last point."""
    mean_seconds: float | None = None
    facts: dict[str, object] = field(default_factory=dict)
    scores: dict[str, tuple[int, float]] = field(default_factory=dict)
    """The last of each, with its step."""
    validation_loss: float | None = None
    input_share: float | None = None


SHAPES = {
    # 300 steps of 3 epochs; 130 s less 3.5 s and 6.5 s of evaluation are 120 s. 32 / (8 x 2) = 2.
    # 69.2 x 130 / 120 = 74.9667 samples a second.
    "hugging face": Shape(
        HF,
        "Hugging Face Trainer",
        300,
        ((50, 0.9), (300, 0.3)),
        0.4,
        {
            "wall_seconds": 130.0,
            "evaluation_seconds": 10.0,
            "world": 2,
            "global_batch": 32,
            "num_parameters": 66_955_010,
            "has_end": True,
            "units_per_second": 69.2 * 130 / 120,
        },
        {"accuracy": (200, 0.85)},
        0.5,
    ),
    # Steps 0 and 30 have the start and an evaluation in them. (40 + 60 + 50) / 3 = 50 ms.
    "nanoGPT": Shape(
        NANOGPT,
        "nanoGPT and relatives",
        40,
        ((0, 4.2649), (40, 2.3)),
        0.05,
        {"num_parameters": 10_650_000, "units_per_second": 16384 / 0.05},
        {},
        2.5,
    ),
    # (0.9 + 0.5 + 0.5) / 3; 0.9 x 500,000 + 2 x 0.5 x 1,000,000 tokens in 1.9 s.
    "llm.c": Shape(
        LLM_C,
        "nanoGPT and relatives",
        3,
        ((1, 11.0), (3, 9.0)),
        1.9 / 3,
        {"steps_wanted": 100, "units_per_second": 1_450_000 / 1.9},
        {},
        9.5,
    ),
    "modded-nanogpt": Shape(
        MODDED,
        "nanoGPT and relatives",
        100,
        ((1, 10.5), (100, 4.0)),
        0.1,
        {"steps_wanted": 100, "has_end": True},
        {},
        3.9,
    ),
    # 29 steps in 58 s.
    "torchtitan": Shape(
        TITAN,
        "torchtitan",
        30,
        ((1, 7.99), (30, 7.7)),
        2.0,
        {"wall_seconds": 58.0},
    ),
    # (1.0 + 0.8 + 0.6) / 3; 16 x 1,024 tokens in 0.8 s.
    "Megatron": Shape(
        MEGATRON,
        "Megatron-LM and relatives",
        30,
        ((20, 10.72453), (30, 10.0)),
        0.8,
        {
            "world": 8,
            "loader_workers": 2,
            "num_parameters": 345_000_000,
            "steps_wanted": 500,
            "global_batch": 16,
            "units_per_second": 16 * 1024 / 0.8,
        },
        {},
        10.5,
    ),
    # 100 x 0.5 s and 100 x 0.3 s: 0.4 s; waits 100 x 0.2 and 100 x 0.05 of 80 s: 25 / 80.
    "timm": Shape(
        TIMM,
        "timm",
        200,
        ((1, 6.9), (200, 4.0)),
        0.4,
        {
            "world": 2,
            "num_parameters": 25_557_032,
            "steps_per_epoch": 100,
            "steps_wanted": 200,
            "has_end": True,
            "evaluation_seconds": 4.0,
        },
        {"top-1": (200, 40.5), "top-5": (200, 70.5)},
        3.9,
        25 / 80,
    ),
    # Four lines of 50 steps of 1 s; waits 0.6, 0.4, 0.4, 0.6 of it.
    "mmdetection": Shape(
        MMDET,
        "OpenMMLab (mmdetection and relatives)",
        200,
        ((50, 1.7), (200, 0.8)),
        1.0,
        {"loader_workers": 4, "batch_per_process": 2, "steps_wanted": 200, "has_end": True},
        {"bbox_mAP": (200, 0.35), "bbox_mAP_50": (200, 0.5)},
        None,
        0.5,
    ),
    "mmengine": Shape(
        MMENGINE,
        "OpenMMLab (mmdetection and relatives)",
        100,
        ((50, 2.0), (100, 1.0)),
        0.5,
        {"steps_wanted": 100},
        {"mIoU": (100, 40.0)},
        None,
        0.2,
    ),
    # 40 steps of 1.1 s by its total. Lines of 1, 20 and 19 steps: waits 1 + 4 + 3.8 of 2 + 20 + 19.
    "DETR": Shape(
        DETR,
        "MetricLogger (torchvision's references, DETR and relatives)",
        40,
        ((1, 40.0), (40, 20.0)),
        1.1,
        {
            "world": 8,
            "loader_workers": 2,
            "num_parameters": 41_302_368,
            "steps_wanted": 80,
            "evaluation_seconds": 6.0,
        },
        {"box AP": (40, 0.15)},
        None,
        8.8 / 41,
    ),
    # Whole milliseconds are nearer than whole seconds: (95 + 85) / 2; 12 s and 10 s in all.
    "Keras": Shape(
        KERAS,
        "Keras",
        200,
        ((100, 1.5), (200, 1.0)),
        0.09,
        {"wall_seconds": 22.0, "steps_wanted": 200, "steps_per_epoch": 100},
        {"accuracy": (200, 0.6)},
        1.1,
    ),
    "Keras 3": Shape(KERAS_3, "Keras", 100, ((100, 1.5),), 0.1, {}, {"accuracy": (100, 0.55)}, 1.2),
    # 32 x 4 pictures, 99 of 100 batches in an epoch at 853 and at 1,280 a second; both are cut to
    # whole numbers. Its lines say 0.1, 0.2, 0.1 and 0.1 s, but may leave out the end of an epoch.
    "MXNet": Shape(
        MXNET,
        "MXNet or Gluon",
        200,
        (),
        (128 * 0.99 / 853.5 + 128 * 0.99 / 1280.5) / 2,
        {"global_batch": 128, "loader_workers": 8, "wall_seconds": 25.0, "steps_wanted": 200},
        {"top-1": (200, 0.4), "top-5": (200, 0.7)},
    ),
    # 8,000 words at 20,000 a second.
    "fairseq": Shape(
        FAIRSEQ,
        "fairseq",
        200,
        ((100, 10.2), (200, 9.2)),
        0.4,
        {
            "world": 8,
            "num_parameters": 60_000_000,
            "wall_seconds": 130.5,
            "units_per_second": 20000.0,
        },
        {"BLEU": (200, 3.5)},
        8.5,
    ),
    # 80 s for 200 updates; 50 x 10,000 + 30 x 20,000 words in 80 s.
    "Marian": Shape(
        MARIAN,
        "Marian",
        200,
        ((100, 9.5), (200, 8.5)),
        0.4,
        {"units_per_second": 13750.0, "has_end": True},
        {"BLEU": (200, 12.5)},
        4.5,
    ),
    # 50 s, 30 s and 20 s for 100 steps each; the hundred with an evaluation in it is not timed.
    "OpenNMT-py": Shape(
        OPENNMT,
        "OpenNMT-py or eole",
        400,
        ((100, 5.0), (400, 2.0)),
        1 / 3,
        {"steps_wanted": 400, "units_per_second": 10000.0, "wall_seconds": 100.0},
        {"accuracy": (200, 35.5)},
        3.0,
    ),
    # 20 s for the first 100; the other 35 s have 15 s of evaluation in them.
    "JoeyNMT": Shape(
        JOEY,
        "JoeyNMT",
        300,
        ((100, 5.5), (300, 3.5)),
        0.2,
        {"evaluation_seconds": 15.0, "num_parameters": 12_223_488},
        {"BLEU": (200, 12.5)},
        2.0,
    ),
    # 200 s and 250 s for 1,000 updates each.
    "Sockeye": Shape(SOCKEYE, "Sockeye", 2000, ((1000, 4.0), (2000, 3.0)), 0.225, {}, {}, 2.0),
    # Twice 100 in 20 s.
    "bars": Shape(BARS, "Lightning's progress bars", 200, ((50, 1.75), (200, 0.5)), 0.2),
    # A line every 5 s and 10 steps.
    "unknown": Shape(
        UNKNOWN,
        "a tool that Paceline does not know",
        100,
        ((10, 2.9), (100, 2.0)),
        0.5,
        {"wall_seconds": 45.0},
    ),
}
