"""The toolkits of this benchmark on a device: with our pieces, tokens per batch and precision.

OpenNMT-py has fp16 and no bf16, so it has fp16 where we have bf16.
"""

import pickle
from pathlib import Path
from statistics import median

from benchmarks.nmt.measuring import measure
from benchmarks.nmt.peers import PEERS, install
from benchmarks.nmt.text import Setup, write_pieces
from benchmarks.pictures import Speed
from paceline.tasks.nmt.preparation.prepare import open_split
from paceline.tasks.nmt.vocabulary import Vocabulary

TOOLKITS = ("eole", "OpenNMT-py", "Seq2SeqTrainer + Marian")


def write_prepared(data: Path, setup: Setup) -> None:
    """Prepared data as everybody reads it."""
    pairs, encoder = open_split(data, "train"), Vocabulary.load(data).processor
    numbers = range(len(pairs))
    ids = {
        "en": [[int(each) for each in pairs.source(number)] for number in numbers],
        "de": [[int(each) for each in pairs.target(number)] for number in numbers],
    }
    setup.text.mkdir(parents=True, exist_ok=True)
    both = list(zip(ids["en"], ids["de"], strict=True))
    (setup.text / "pairs.pickle").write_bytes(pickle.dumps(both))
    write_pieces(setup.text, encoder, ids, setup.vocab_size)


def speed_of_toolkit(name: str, setup: Setup, peers_folder: Path) -> Speed:
    """Target tokens, as it counts them itself; without the interval in which it loads."""
    (peer,) = [each for each in PEERS if each.name == name]
    rates = measure(peer, install(peer, peers_folder), setup)
    return Speed(
        median(rate.per_second for rate in rates), median(rate.per_cpu_second for rate in rates)
    )
