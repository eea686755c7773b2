"""FSDP2: every layer is sharded, and kept whole from forward to backward."""

import torch
import torch.distributed as dist
import torch.distributed.checkpoint as dcp
from samples import Samples, network, options
from torch.distributed.fsdp import fully_shard
from torch.utils.data import DataLoader, DistributedSampler


def main() -> None:
    given = options()
    batch = 3 * given.batch  # FSDP sends more bytes in a step than DDP does
    dist.init_process_group("gloo")
    data = Samples(given.steps * batch * dist.get_world_size(), given.read_seconds)
    loader = DataLoader(data, batch, sampler=DistributedSampler(data), num_workers=1)
    model = network()
    for layer in model:
        if isinstance(layer, torch.nn.Linear):
            fully_shard(layer, reshard_after_forward=False)
    fully_shard(model, reshard_after_forward=False)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step, (inputs, labels) in enumerate(loader, 1):
        torch.nn.functional.cross_entropy(model(inputs), labels).backward()
        optimizer.step()
        optimizer.zero_grad()
        if given.save and step % given.save_every == 0:
            dcp.save({"model": model.state_dict()}, checkpoint_id=f"{given.save}/step-{step}")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
