"""Hugging Face's Trainer, as anybody uses it."""

import argparse
import time
from typing import Any

import torch
import trouble
from transformers import (
    BertConfig,
    BertForSequenceClassification,
    Trainer,
    TrainerCallback,
    TrainingArguments,
)


class Sentences(torch.utils.data.Dataset[dict[str, torch.Tensor]]):
    def __len__(self) -> int:
        return 4096

    def __getitem__(self, index: int) -> dict[str, torch.Tensor]:
        words = torch.arange(8) + index % 50
        return {"input_ids": words, "labels": torch.tensor(index % 2)}


class Steps(TrainerCallback):  # type: ignore[misc]
    def __init__(self, kind: str) -> None:
        self.kind = kind

    def on_step_end(self, _args: Any, state: Any, *_: Any, **__: Any) -> None:
        time.sleep(0.1)
        trouble.after_step(self.kind, state.global_step)
        if state.global_step < 10 or state.global_step % 50 == 0:
            print(f"step {state.global_step}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--trouble", default="")
    parser.add_argument("--save", default="", help="a folder")
    parser.add_argument("--results", default="results")
    options = parser.parse_args()
    trouble.before_start(options.trouble)
    shape = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2}
    model = BertForSequenceClassification(BertConfig(vocab_size=100, intermediate_size=64, **shape))
    arguments = TrainingArguments(
        output_dir=options.save or options.results,
        max_steps=options.steps,
        per_device_train_batch_size=4,
        save_strategy="steps" if options.save else "no",
        save_steps=5,
        report_to=[],
        use_cpu=True,
        ddp_backend="gloo",
        disable_tqdm=True,
    )
    Trainer(model, arguments, train_dataset=Sentences(), callbacks=[Steps(options.trouble)]).train()


if __name__ == "__main__":
    main()
