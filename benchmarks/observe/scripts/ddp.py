"""A plain loop with DistributedDataParallel."""

import torch
import torch.distributed as dist
from samples import Samples, network, options
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler


def main() -> None:
    given = options()
    dist.init_process_group("gloo")
    data = Samples(given.steps * given.batch * dist.get_world_size(), given.read_seconds)
    loader = DataLoader(data, given.batch, sampler=DistributedSampler(data), num_workers=1)
    model = DistributedDataParallel(network())
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    for step, (inputs, labels) in enumerate(loader, 1):
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        if given.save and step % given.save_every == 0 and dist.get_rank() == 0:
            torch.save(model.state_dict(), f"{given.save}/step-{step}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
