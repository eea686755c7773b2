"""Readers of what translation toolkits print; `FORMATS` lists them."""

from paceline.report.foreign.reading.contract import TextFormat
from paceline.report.foreign.translation import fairseq, joeynmt, marian, opennmt, sockeye

FORMATS: tuple[TextFormat, ...] = (
    fairseq.FORMAT,
    marian.FORMAT,
    opennmt.FORMAT,
    joeynmt.FORMAT,
    sockeye.FORMAT,
)
