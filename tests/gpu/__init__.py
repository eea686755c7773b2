"""What needs a GPU: the first thing to run on a new machine, `make test-gpu`."""
