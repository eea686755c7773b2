"""Lightning, on as many hosts as there are processes."""

import os

import lightning
import torch
from lightning.pytorch.callbacks import ModelCheckpoint
from samples import Samples, network, options
from torch.utils.data import DataLoader


class Classifier(lightning.LightningModule):
    def __init__(self) -> None:
        super().__init__()
        self.network = network()

    def training_step(self, batch, _number):
        inputs, labels = batch
        return torch.nn.functional.cross_entropy(self.network(inputs), labels)

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.01)


def main() -> None:
    given = options()
    num_hosts = int(os.environ.get("WORLD_SIZE", "1"))
    saves = []
    if given.save:
        saves = [ModelCheckpoint(given.save, every_n_train_steps=given.save_every, save_top_k=-1)]
    trainer = lightning.Trainer(
        max_steps=given.steps,
        accelerator="cpu",
        devices=1,
        num_nodes=num_hosts,
        strategy="ddp" if num_hosts > 1 else "auto",
        callbacks=saves,
        enable_checkpointing=bool(saves),
        logger=False,
        enable_progress_bar=False,
        enable_model_summary=False,
    )
    data = Samples(given.steps * given.batch * num_hosts, given.read_seconds)
    trainer.fit(Classifier(), DataLoader(data, given.batch, shuffle=True, num_workers=1))


if __name__ == "__main__":
    main()
