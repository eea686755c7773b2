"""Training: the loop, one optimizer step, checkpoints, and what is recorded of them."""
