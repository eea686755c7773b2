"""Hugging Face Accelerate."""

import torch
from accelerate import Accelerator
from samples import Samples, network, options
from torch.utils.data import DataLoader


def main() -> None:
    given = options()
    accelerator = Accelerator(cpu=True)
    torch.set_num_threads(1)  # which it has changed
    size = given.steps * given.batch * accelerator.num_processes
    data = Samples(size, given.read_seconds)
    model = network()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loader = DataLoader(data, given.batch, shuffle=True, num_workers=1)
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
