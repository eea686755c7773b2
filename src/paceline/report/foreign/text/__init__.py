"""Readers of printed logs, one module per tool; `FORMATS` lists them."""

from paceline.report.foreign.reading.contract import TextFormat
from paceline.report.foreign.text import megatron, nanogpt, torchtitan

FORMATS: tuple[TextFormat, ...] = (nanogpt.FORMAT, torchtitan.FORMAT, megatron.FORMAT)
