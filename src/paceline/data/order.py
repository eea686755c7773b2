"""Which sample comes when: a pure function of the seed and the position in the stream.

The stream is epoch after epoch without a gap, each a fresh permutation. Nothing here knows how many
processes there are; so any number of them, and a restart at another number, sees every sample
exactly once in every epoch.
"""

from functools import lru_cache

import numpy as np

_SAMPLE_ORDER, _MICRO_BATCH = 1, 2


@lru_cache(maxsize=2)
def _permutation(num_samples: int, seed: int, epoch: int) -> np.ndarray:
    order = generator(seed, _SAMPLE_ORDER, epoch).permutation(num_samples)
    order.flags.writeable = False
    return order


def samples_at(num_samples: int, seed: int, start: int, stop: int) -> tuple[np.ndarray, np.ndarray]:
    """The samples at positions `start` to `stop` of the stream, and the epoch of each."""
    positions = np.arange(start, stop)
    epochs = positions // num_samples
    chosen = np.empty(len(positions), dtype=np.int64)
    for epoch in np.unique(epochs):
        here = epochs == epoch
        order = _permutation(num_samples, seed, int(epoch))
        chosen[here] = order[positions[here] % num_samples]
    return chosen, epochs


def fixed_part(num_samples: int, num_wanted: int) -> range:
    """At most so many samples, evenly spread over the data and always the same ones."""
    return range(0, num_samples, -(-num_samples // num_wanted)) if num_wanted else range(0)


def generator(*key: int) -> np.random.Generator:
    """A random stream of its own for every key, the same wherever it is drawn."""
    return np.random.Generator(np.random.Philox(np.random.SeedSequence(key)))


def micro_batch_generator(seed: int, index: int) -> np.random.Generator:
    """Randomness of one micro-batch (augmentation), independent of where it is computed."""
    return generator(seed, _MICRO_BATCH, index)


def torch_seed(seed: int, index: int) -> int:
    """The seed that torch's own generators (dropout) get before a micro-batch."""
    state = np.random.SeedSequence((seed, 3, index)).generate_state(1, np.uint64)
    return int(state[0] >> np.uint64(1))
