"""Readers of printed logs, one module per tool; `FORMATS` lists them."""

from paceline.report.foreign.reading.contract import TextFormat
from paceline.report.foreign.text import (
    bars,
    hugging_face,
    json_lines,
    keras,
    megatron,
    metric_logger,
    mxnet,
    nanogpt,
    openmmlab,
    timm,
    torchtitan,
    unknown,
)

FORMATS: tuple[TextFormat, ...] = (
    hugging_face.FORMAT,
    nanogpt.FORMAT,
    torchtitan.FORMAT,
    megatron.FORMAT,
    timm.FORMAT,
    openmmlab.FORMAT,
    metric_logger.FORMAT,
    keras.FORMAT,
    mxnet.FORMAT,
    json_lines.FORMAT,
    bars.FORMAT,
    unknown.FORMAT,
)
