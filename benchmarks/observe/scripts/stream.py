"""DistributedDataParallel with an IterableDataset and accumulated gradients."""

import contextlib

import torch
import torch.distributed as dist
from samples import Stream, network, options
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader

ACCUMULATE = 2


def main() -> None:
    given = options()
    dist.init_process_group("gloo")
    model = DistributedDataParallel(network())
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4)
    data = Stream(given.steps * given.batch, given.read_seconds)
    loader = DataLoader(data, given.batch // ACCUMULATE)
    for number, (inputs, labels) in enumerate(loader, 1):
        is_last = number % ACCUMULATE == 0
        with contextlib.nullcontext() if is_last else model.no_sync():
            loss = torch.nn.functional.cross_entropy(model(inputs), labels) / ACCUMULATE
            loss.backward()
        if not is_last:
            continue
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        step = number // ACCUMULATE
        if given.save and step % given.save_every == 0 and dist.get_rank() == 0:
            torch.save(model.state_dict(), f"{given.save}/step-{step}.pt")
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
