"""What `paceline selftest` and tests/gpu run: the whole way of a training, on the devices here."""
