"""Two networks that are trained against each other, each with an optimizer of its own."""

from itertools import pairwise

import torch
import torch.distributed as dist
from samples import WIDTH, Samples, options
from torch import nn
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler


def layers(*sizes: int) -> nn.Module:
    parts = [part for one, two in pairwise(sizes) for part in (nn.Linear(one, two), nn.ReLU())]
    return nn.Sequential(*parts[:-1])


def main() -> None:
    given = options()
    dist.init_process_group("gloo")
    data = Samples(given.steps * given.batch * dist.get_world_size(), given.read_seconds)
    loader = DataLoader(data, given.batch, sampler=DistributedSampler(data), num_workers=1)
    generator = DistributedDataParallel(layers(64, 1024, 768, WIDTH))
    critic = DistributedDataParallel(layers(WIDTH, 1024, 512, 1))
    of_generator = torch.optim.Adam(generator.parameters(), lr=2e-4)
    of_critic = torch.optim.Adam(critic.parameters(), lr=2e-4)
    judge = nn.BCEWithLogitsLoss()
    ones, zeros = torch.ones(given.batch, 1), torch.zeros(given.batch, 1)
    for step, (real, _) in enumerate(loader, 1):
        fake = generator(torch.randn(given.batch, 64))
        of_critic.zero_grad()
        both = critic(torch.cat([real, fake.detach()]))
        judge(both, torch.cat([ones, zeros])).backward()
        of_critic.step()
        of_generator.zero_grad()
        judge(critic(fake), ones).backward()
        of_generator.step()
        if given.save and step % given.save_every == 0 and dist.get_rank() == 0:
            state = {"generator": generator.state_dict(), "critic": critic.state_dict()}
            torch.save(state, f"{given.save}/step-{step}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
