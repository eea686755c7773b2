"""Hugging Face Accelerate."""

import torch
from accelerate import Accelerator
from samples import BATCH, Samples, network, options
from torch.utils.data import DataLoader


def main() -> None:
    given = options()
    accelerator = Accelerator(cpu=True)
    size = given.steps * BATCH * accelerator.num_processes
    data = Samples(size, given.read_seconds)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(data, BATCH, shuffle=True, num_workers=1)
    model, optimizer, loader = accelerator.prepare(model, optimizer, loader)
    for step, (inputs, labels) in enumerate(loader, 1):
        loss = torch.nn.functional.cross_entropy(model(inputs), labels)
        accelerator.backward(loss)
        optimizer.step()
        optimizer.zero_grad()
        if given.save and step % given.save_every == 0:
            accelerator.save_state(f"{given.save}/step-{step}")
    accelerator.end_training()


if __name__ == "__main__":
    main()
