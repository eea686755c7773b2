"""Counters of the machine beside a foreign log: GPU utilisation, load of the cores, traffic."""
