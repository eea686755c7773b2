"""Hugging Face's Trainer."""

import tempfile

import torch
from samples import Samples, network, options
from transformers import Trainer, TrainingArguments


class Classifier(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.network = network()

    def forward(self, inputs, labels):
        logits = self.network(inputs)
        return {"loss": torch.nn.functional.cross_entropy(logits, labels), "logits": logits}


def collate(samples):
    inputs, labels = zip(*samples, strict=True)
    return {"inputs": torch.stack(inputs), "labels": torch.tensor(labels)}


def main() -> None:
    given = options()
    arguments = TrainingArguments(
        output_dir=given.save or tempfile.mkdtemp(),
        max_steps=given.steps,
        per_device_train_batch_size=given.batch,
        dataloader_num_workers=1,
        optim="sgd",
        save_strategy="steps" if given.save else "no",
        save_steps=given.save_every,
        logging_steps=10,
        report_to=[],
        use_cpu=True,
        ddp_backend="gloo",
        disable_tqdm=True,
    )
    data = Samples(given.steps * given.batch * 2, given.read_seconds)
    trainer = Trainer(Classifier(), arguments, collate, data)
    torch.set_num_threads(1)  # which Accelerate has changed
    trainer.train()


if __name__ == "__main__":
    main()
