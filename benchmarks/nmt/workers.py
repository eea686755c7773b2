"""What is measured in processes of its own, each printing what it did and how long it took."""

import json
import shutil
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from benchmarks.nmt.models import (
    Step,
    marian_decoder,
    marian_model,
    marian_step,
    never_ending,
    paceline_decoder,
    paceline_step,
    plain_adam,
    torch_step,
)
from benchmarks.nmt.text import (
    BEAM_SIZE,
    DECODED_BATCH,
    DECODED_LENGTH,
    EOS,
    EXTRA_LENGTH,
    PAD,
    Batch,
    Setup,
    collate,
    load_pairs,
    num_target_tokens,
    padded,
    random_batches,
    sentences_per_batch,
    sorted_batches,
    sources_to_decode,
)
from paceline.models.beam import BeamOptions
from paceline.models.transformer import Transformer
from paceline.tasks.nmt.serve import EXPORT_CARD
from paceline.tasks.nmt.serve.exported import CARD_VERSION, ExportedTranslator
from paceline.tasks.nmt.serve.lines import Search
from paceline.tasks.nmt.serve.spec import specify
from paceline.tasks.nmt.vocabulary import MODEL_NAME, Vocabulary


def say_interval(rate: float) -> None:
    print(f"interval: {rate:.2f} tok/s", flush=True)


def work_in_turns(setup: Setup) -> None:
    """The same batches for all three; a line of JSON for each pair of steps."""
    makers = {"paceline": paceline_step, "marian": marian_step, "torch.nn": torch_step}
    torch.manual_seed(1)
    steps = {name: make(setup.shape) for name, make in makers.items()}
    batches = sorted_batches(setup, seed=1)
    for number in range(1 + setup.steps_per_interval * setup.num_intervals):
        batch = next(batches)
        measured = {name: time_step(step, batch) for name, step in steps.items()}
        if number:  # the first one warms up
            measured["tokens"] = (num_target_tokens(batch), 0.0)
            print(json.dumps(measured), flush=True)


def work_in_turns_decoding(setup: Setup) -> None:
    """The same sources for both, a line of JSON for each pair of translations."""
    sources = [source for source, _ in load_pairs(setup) if len(source) == DECODED_LENGTH]
    batch = sources[: setup.batch_tokens // DECODED_LENGTH // BeamOptions().beam_size]
    torch.manual_seed(1)
    steps = {"paceline": paceline_decoder(setup.shape), "marian": marian_decoder(setup.shape)}
    for number in range(1 + setup.num_intervals):
        measured = {name: time_step(step, padded_sources(batch)) for name, step in steps.items()}
        if number:
            measured["tokens"] = (len(batch) * (DECODED_LENGTH + EXTRA_LENGTH), 0.0)
            print(json.dumps(measured), flush=True)


def work_as_exported(setup: Setup, quantization: str | None) -> None:
    """What `paceline translate` does with an exported model, but for the text."""
    directory = setup.text / f"exported-{quantization}"
    vocabulary = Vocabulary.load(setup.text / "pieces.model")
    model = never_ending(setup.shape, vocabulary.size)
    export(model, setup, directory, quantization)
    translator = ExportedTranslator(directory)
    search = Search(beam=BEAM_SIZE, extra_length=EXTRA_LENGTH)
    translator.search(sources_to_decode(setup)[:8], search)  # the first call allocates

    def decode(sources: list[list[int]]) -> None:
        found = translator.search(sources, search)
        assert all(len(best[0].ids) == DECODED_LENGTH + EXTRA_LENGTH for best in found)

    tell_decoded(setup, decode)


def export(model: Transformer, setup: Setup, directory: Path, quantization: str | None) -> None:
    vocabulary = Vocabulary.load(setup.text / "pieces.model")
    spec = specify(model, vocabulary, num_positions=512)
    spec.optimize(quantization)
    directory.mkdir(exist_ok=True)
    spec.save(str(directory))
    shutil.copyfile(setup.text / "pieces.model", directory / MODEL_NAME)
    card = {
        "version": CARD_VERSION,
        "decode": {"beam": BEAM_SIZE},
        "longest_seen": 100,
        "step": 0,
        "num_rows": setup.shape.padded_vocab_size,
    }
    (directory / EXPORT_CARD).write_text(json.dumps(card))


def work_as_marian_decoder(setup: Setup) -> None:
    step = marian_decoder(setup.shape)

    def decode(sources: list[list[int]]) -> None:
        ended = [[*source, EOS] for source in sources]
        for start in range(0, len(ended), DECODED_BATCH):
            step(padded_sources(ended[start : start + DECODED_BATCH]))

    tell_decoded(setup, decode)


def tell_decoded(setup: Setup, decode: Callable[[list[list[int]]], Any]) -> None:
    sources = sources_to_decode(setup)
    start = time.perf_counter()
    decode(sources)
    print(f"decoded in {time.perf_counter() - start:.3f} s", flush=True)


def padded_sources(sources: list[list[int]]) -> Batch:
    ids = padded(sources)
    return ids, ids, ids


def time_step(step: Step, batch: Batch) -> tuple[float, float]:
    start, cpu_start = time.perf_counter(), time.process_time()
    step(batch)
    return time.perf_counter() - start, time.process_time() - cpu_start


def work_alone(setup: Setup, step: Step, batches: Iterator[Batch]) -> None:
    for _ in range(setup.num_intervals + 1):
        start, num_tokens = time.perf_counter(), 0
        for _ in range(setup.steps_per_interval):
            batch = next(batches)
            num_tokens += num_target_tokens(batch)
            step(batch)
        say_interval(num_tokens / (time.perf_counter() - start))


def work_as_paceline(setup: Setup) -> None:
    work_alone(setup, paceline_step(setup.shape), sorted_batches(setup, seed=1))


def work_as_torch_loop(setup: Setup) -> None:
    step = torch_step(setup.shape, plain_adam)
    work_alone(setup, step, random_batches(setup, seed=1))


def work_as_seq2seq_trainer(setup: Setup) -> None:
    from transformers import Seq2SeqTrainer, Seq2SeqTrainingArguments

    rows = [{"input_ids": one, "labels": other} for one, other in load_pairs(setup)]
    counter = IntervalCounter(setup)
    arguments = Seq2SeqTrainingArguments(
        output_dir=str(setup.text / "trainer"),
        max_steps=setup.num_steps,
        use_cpu=setup.device == "cpu",
        fp16=setup.precision == "fp16",
        bf16=setup.precision == "bf16",
        per_device_train_batch_size=sentences_per_batch(setup),
        label_smoothing_factor=0.1,
        save_strategy="no",
        logging_strategy="no",
        report_to="none",
        disable_tqdm=True,
    )
    trainer = Seq2SeqTrainer(
        model=marian_model(setup.shape),
        args=arguments,
        train_dataset=rows,
        data_collator=counter.collate,
        callbacks=[counter.callback()],
    )
    trainer.train()


class IntervalCounter:
    """Counts the target tokens that a trainer is fed and reports them every few steps."""

    def __init__(self, setup: Setup) -> None:
        self.setup, self.num_tokens, self.num_steps = setup, 0, 0
        self.start = time.perf_counter()

    def collate(self, rows: list[dict[str, list[int]]]) -> dict[str, Tensor]:
        source, target_in, target_out = collate([(row["input_ids"], row["labels"]) for row in rows])
        self.num_tokens += int((target_out != PAD).sum())
        labels = target_out.masked_fill(target_out == PAD, -100)
        mask = (source != PAD).long()
        return {
            "input_ids": source,
            "attention_mask": mask,
            "labels": labels,
            "decoder_input_ids": target_in,
        }

    def callback(self) -> Any:
        from transformers import TrainerCallback

        counter = self

        class AtStepEnd(TrainerCallback):  # type: ignore[misc, unused-ignore]
            def on_step_end(self, *_: Any, **__: Any) -> None:
                counter.end_step()

        return AtStepEnd()

    def end_step(self) -> None:
        self.num_steps += 1
        if self.num_steps % self.setup.steps_per_interval == 0:
            now = time.perf_counter()
            say_interval(self.num_tokens / (now - self.start))
            self.start, self.num_tokens = now, 0


WORKERS: dict[str, Callable[[Setup], None]] = {
    "in turns": work_in_turns,
    "decoding in turns": work_in_turns_decoding,
    "paceline": work_as_paceline,
    "torch.nn.Transformer loop": work_as_torch_loop,
    "Seq2SeqTrainer + Marian": work_as_seq2seq_trainer,
    "exported": partial(work_as_exported, quantization=None),
    "exported int8": partial(work_as_exported, quantization="int8"),
    "Marian decoding": work_as_marian_decoder,
}
