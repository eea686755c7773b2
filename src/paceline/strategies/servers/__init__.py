"""Parameter servers: a shard of the weights each, and who may read and update it."""
