"""A plain loop with DistributedDataParallel, as anybody writes it."""

import argparse
import time

import torch
import torch.distributed as dist
import trouble
from torch.nn.parallel import DistributedDataParallel
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--trouble", default="")
    parser.add_argument("--save", default="", help="a folder")
    options = parser.parse_args()
    trouble.before_start(options.trouble)
    dist.init_process_group("gloo")
    data = TensorDataset(torch.randn(4096, 16), torch.randint(0, 4, (4096,)))
    loader = DataLoader(data, batch_size=8, sampler=DistributedSampler(data))
    model = DistributedDataParallel(torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    step = 0
    while step < options.steps:
        for inputs, labels in loader:
            loss = torch.nn.functional.cross_entropy(model(inputs), labels)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            step += 1
            time.sleep(0.1)
            trouble.after_step(options.trouble, step)
            if step < 10 or step % 50 == 0:
                print(f"step {step}", flush=True)
            if options.save and step % 5 == 0 and dist.get_rank() == 0:
                state = {"model": model.state_dict(), "more": torch.zeros(500_000)}
                torch.save(state, f"{options.save}/step-{step}.pt")
            if step == options.steps:
                break
    dist.destroy_process_group()


if __name__ == "__main__":
    main()
