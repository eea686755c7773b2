"""An exported model says what the run says, and needs no torch to say it."""

import json
import os
import pty
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from torch.nn.utils.rnn import pad_sequence

from paceline import config, recipe
from paceline.errors import UserError
from paceline.models.transformer import Transformer
from paceline.record.checkpoints import OPTIMIZER, WEIGHTS
from paceline.tasks.nmt.network import nmt_shape
from paceline.tasks.nmt.preparation import prepare as nmt
from paceline.tasks.nmt.serve.export import Order, export
from paceline.tasks.nmt.serve.exported import BATCH_TOKENS, ExportedTranslator, similar
from paceline.tasks.nmt.serve.lines import Search
from paceline.tasks.nmt.serve.translate import RunTranslator
from paceline.tasks.nmt.settings import NmtRecipe
from paceline.tasks.nmt.standin.sentences import pairs
from paceline.tasks.nmt.vocabulary import MODEL_NAME, Vocabulary
from paceline.train.save import Snapshot, write_checkpoint

NUM_STEPS = 60
VOCAB_SIZE = 403  # no multiple of 8: the embedding has rows that stand for nothing
LEARNED = list(pairs(3, "train", 0, 16))
TEXTS = [english for english, _ in [*LEARNED, *pairs(3, "test", 0, 16)]] + ["a", "1 2 3"]

Finished = subprocess.CompletedProcess[bytes]


def _quiet(_text: str) -> None:
    pass


@pytest.fixture(scope="module")
def data(tmp_path_factory: pytest.TempPathFactory) -> Path:
    options = nmt.Options(vocab_size=VOCAB_SIZE, num_pairs=1000)
    return nmt.prepare("stand-in", tmp_path_factory.mktemp("data") / "text", options, _quiet)


def write_run(run: Path, data: Path, *settings: str, num_steps: int = NUM_STEPS) -> Path:
    """A run that has learned a few sentences by heart: random weights come to no end."""
    loaded = recipe.load("nmt-tiny", [f"data={data}", f"model.vocab_size={VOCAB_SIZE}", *settings])
    assert isinstance(loaded, NmtRecipe)
    run.mkdir()
    (run / "recipe.yaml").write_text(config.to_yaml(config.dump(loaded)), encoding="utf-8")
    vocabulary = Vocabulary.load(data)
    torch.manual_seed(5)
    torch.set_num_threads(1)
    model = Transformer(nmt_shape(loaded, vocabulary))
    learn(model, vocabulary, num_steps)
    save_weights(run, model.state_dict())
    return run


def save_weights(run: Path, weights: dict[str, torch.Tensor]) -> None:
    files = {WEIGHTS: weights, OPTIMIZER: {"none": torch.zeros(1)}}
    write_checkpoint(run / "checkpoints", Snapshot(7, None, files, {}))


def learn(model: Transformer, vocabulary: Vocabulary, num_steps: int) -> None:
    ends, starts = [vocabulary.eos_id], [vocabulary.bos_id]
    sources, targets = (vocabulary.encode(side) for side in zip(*LEARNED, strict=True))
    batch = [
        pad_sequence([torch.tensor(ids) for ids in rows], batch_first=True)
        for rows in (
            [s + ends for s in sources],
            [starts + t for t in targets],
            [t + ends for t in targets],
        )
    ]
    optimizer = torch.optim.Adam(model.parameters(), lr=2e-3)
    for _ in range(num_steps):
        optimizer.zero_grad()
        sums = model(*batch)
        (sums.loss_sum / sums.num_tokens).backward()
        optimizer.step()


@pytest.fixture(scope="module")
def post_norm_run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("post") / "run", data, "model.norm=post")


@pytest.fixture(scope="module")
def run(data: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_run(tmp_path_factory.mktemp("pre") / "run", data)


@pytest.fixture(scope="module")
def exported(run: Path) -> Path:
    export(Order(run, run.parent / "exported", num_checked=0), _quiet)
    return run.parent / "exported"


@pytest.mark.parametrize("beam", [1, 4])
def test_the_exported_model_says_what_the_run_says(run: Path, exported: Path, beam: int) -> None:
    assert_same(run, exported, beam)


def test_so_does_one_with_norms_after_the_sublayers(post_norm_run: Path, tmp_path: Path) -> None:
    export(Order(post_norm_run, tmp_path / "exported", num_checked=0), _quiet)
    for beam in (1, 4):
        assert_same(post_norm_run, tmp_path / "exported", beam)


def assert_same(run: Path, exported: Path, beam: int) -> None:
    search = Search(beam=beam)
    expected = [best[0] for best in RunTranslator(run).translate(TEXTS, search)]
    found = [best[0] for best in ExportedTranslator(exported).translate(TEXTS, search)]
    assert [one.text for one in found] == [one.text for one in expected]
    assert len({one.text for one in expected}) > 10
    assert [one.score for one in found] == pytest.approx([one.score for one in expected], abs=1e-3)


def test_the_run_has_learned_what_the_comparison_is_made_with(run: Path) -> None:
    found = RunTranslator(run).translate([english for english, _ in LEARNED], Search())
    assert [best[0].text for best in found] == [german for _, german in LEARNED]


@pytest.mark.parametrize("num_threads", [1, 2, 8])
def test_every_thread_has_a_batch_and_no_batch_is_too_large(num_threads: int) -> None:
    lengths = [3 + number % 30 for number in range(300)]
    batches = similar(lengths, num_threads)
    assert sorted(number for batch in batches for number in batch) == list(range(300))
    assert len(similar([15] * 64, num_threads)) == num_threads
    for batch in batches:
        assert len(batch) * max(lengths[number] for number in batch) <= BATCH_TOKENS


def test_n_best_lists_agree(run: Path, exported: Path) -> None:
    search = Search(beam=4, num_best=3)
    expected = RunTranslator(run).translate(TEXTS[:8], search)
    found = ExportedTranslator(exported).translate(TEXTS[:8], search)
    assert [best[0].text for best in found] == [best[0].text for best in expected]
    for candidates in found:
        assert len(candidates) == 3
        assert candidates == sorted(candidates, key=lambda one: -one.score)


def test_a_translation_without_end_stops_at_its_own_limit(run: Path, exported: Path) -> None:
    """Whatever the others of its batch may still say."""
    search = Search(beam=1, extra_length=1)
    texts = [LEARNED[2][0], " ".join(english for english, _ in LEARNED[:4])]
    expected = RunTranslator(run).translate(texts, search)
    found = ExportedTranslator(exported).translate(texts, search)
    assert [best[0].text for best in found] == [best[0].text for best in expected]


def test_padding_and_start_are_never_said(data: Path, tmp_path: Path) -> None:
    """Not even by a model that wants to say nothing else."""
    run = write_run(tmp_path / "run", data, num_steps=0)
    vocabulary = Vocabulary.load(data)
    own = RunTranslator(run)
    weights = own.model.state_dict()
    for number in (vocabulary.pad_id, vocabulary.bos_id, VOCAB_SIZE):
        weights["decoder_norm.bias"] += 20 * weights["embedding.weight"][number]
    save_weights(run, weights)
    expected = RunTranslator(run).translate(TEXTS[:4], Search(beam=1))
    export(Order(run, tmp_path / "exported", num_checked=0), _quiet)
    found = ExportedTranslator(tmp_path / "exported").search(vocabulary.encode(TEXTS[:4]), Search())
    allowed = set(range(VOCAB_SIZE)) - {vocabulary.pad_id, vocabulary.bos_id}
    assert all(set(best[0].ids) <= allowed for best in found)
    assert any(best[0].text for best in expected)


def test_export_checks_itself_and_says_what_it_cost(data: Path, run: Path, tmp_path: Path) -> None:
    table = export(Order(run, tmp_path / "small", quantize="int8", num_checked=12), _quiet)
    for word in ("size on disk", "BLEU", "sentences/s", "same translation", "int8", "of 12"):
        assert word in table
    card = json.loads((tmp_path / "small" / "paceline.json").read_text(encoding="utf-8"))
    assert card["step"] == 7
    assert card["languages"] == "en-de"
    assert card["decode"] == {"beam": 4, "length_penalty": 0.6, "extra_length": 50}
    assert card["check"]["num_sentences"] == 12
    assert card["check"]["num_same"] >= 6
    assert {path.name for path in tmp_path.iterdir()} == {"small"}


def test_eight_bits_are_much_smaller(run: Path, exported: Path, tmp_path: Path) -> None:
    export(Order(run, tmp_path / "small", quantize="int8", num_checked=0), _quiet)
    whole, small = (path / "model.bin" for path in (exported, tmp_path / "small"))
    assert small.stat().st_size < 0.5 * whole.stat().st_size


def test_a_run_without_its_data_can_be_exported_unchecked(data: Path, tmp_path: Path) -> None:
    run = write_run(tmp_path / "run", data, f"data={tmp_path / 'gone'}", num_steps=0)
    with pytest.raises(UserError, match="SentencePiece"):
        export(Order(run, tmp_path / "exported"), _quiet)
    shutil.copy(data / MODEL_NAME, run / MODEL_NAME)
    said: list[str] = []
    export(Order(run, tmp_path / "exported"), said.append)
    assert "not checked" in "".join(said)


def test_an_export_replaces_an_export_and_nothing_else(run: Path, tmp_path: Path) -> None:
    order = Order(run, tmp_path / "exported", num_checked=0)
    export(order, _quiet)
    export(order, _quiet)
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "letter.txt").touch()
    with pytest.raises(UserError, match="no exported model"):
        export(Order(run, tmp_path / "mine"), _quiet)
    assert {path.name for path in tmp_path.iterdir()} == {"exported", "mine"}


def paceline(*words: str | Path, given: bytes = b"", **environment: str) -> Finished:
    return subprocess.run(
        [sys.executable, "-m", "paceline.cli", *map(str, words)],
        input=given,
        timeout=120,
        capture_output=True,
        check=False,
        env={**os.environ, "OMP_NUM_THREADS": "1", **environment},
    )


NASTY = b"\n".join(
    [
        TEXTS[0].encode(),
        b"",
        b" \t\r",
        b"a\x00b\x1b[31m",
        b"caf\xe9 \xff",
        "\u2028\u200b".encode(),
        b" ".join([TEXTS[1].encode()] * 12),
        b"x" * 600,
        TEXTS[2].encode(),
    ]
)


def test_a_run_answers_every_line_of_a_nasty_file(run: Path) -> None:
    result = paceline("translate", run, "--greedy", given=NASTY)
    assert result.returncode == 0, result.stderr
    check_nasty(result)


def test_an_exported_model_answers_every_line_without_torch(exported: Path, tmp_path: Path) -> None:
    """Nor anything else that a small device would have to install for nothing."""
    for name in ("torch", "pydantic", "yaml", "safetensors", "psutil", "tensorboard"):
        (tmp_path / f"{name}.py").write_text("raise ImportError('not on this device')\n")
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    result = paceline("translate", exported, "--greedy", given=NASTY, PYTHONPATH=path)
    assert result.returncode == 0, result.stderr
    check_nasty(result)


def check_nasty(result: Finished) -> None:
    lines = result.stdout.decode().split("\n")
    assert len(lines) == 10
    assert lines[-1] == ""
    assert lines[0] == LEARNED[0][1]
    assert lines[8] == LEARNED[2][1]
    assert [lines[number] for number in (1, 2, 5)] == ["", "", ""]
    assert lines[6] == " ".join([LEARNED[1][1]] * 12)
    said = result.stderr.decode()
    for words in ("line 4: control", "line 5: not UTF-8", "line 7: too long: translated in 12"):
        assert words in said


def test_torch_is_not_imported_even_where_it_is_installed(exported: Path) -> None:
    code = (
        "import sys; from paceline import cli; sys.argv = ['paceline', 'translate', sys.argv[1]]\n"
        "try: cli.main()\n"
        "finally: assert 'torch' not in sys.modules"
    )
    result = subprocess.run(
        [sys.executable, "-c", code, str(exported)], input=b"a\n", capture_output=True, check=False
    )
    assert result.returncode == 0, result.stderr


def test_a_reader_that_has_seen_enough_is_no_error(exported: Path) -> None:
    command = f"{sys.executable} -m paceline.cli translate {exported} --greedy | head -n 1"
    result = subprocess.run(
        ["bash", "-c", f"set -o pipefail; {command}"],
        input=b"a\n" * 5000,
        capture_output=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr
    assert result.stdout.count(b"\n") == 1
    assert result.stderr == b""


def test_on_a_terminal_each_line_is_answered_at_once(exported: Path) -> None:
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "paceline.cli", "translate", str(exported)]
    process = subprocess.Popen(command, stdin=slave, stdout=subprocess.PIPE, stderr=subprocess.PIPE)
    assert process.stdout is not None
    for english, german in LEARNED[:2]:
        os.write(master, f"{english}\n".encode())
        assert process.stdout.readline().decode() == f"{german}\n"
    os.write(master, b"\x04")
    _, said = process.communicate(timeout=60)
    assert process.returncode == 0
    assert said.startswith(b"> > >")


def heed_interrupts() -> None:
    """Shells start what runs in the background with Ctrl-C ignored, and children inherit that."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


def test_an_interrupt_ends_quietly(exported: Path) -> None:
    master, slave = pty.openpty()
    command = [sys.executable, "-m", "paceline.cli", "translate", str(exported)]
    process = subprocess.Popen(
        command,
        stdin=slave,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        preexec_fn=heed_interrupts,  # noqa: PLW1509
    )
    assert process.stdout is not None
    os.write(master, b"a\n")
    process.stdout.readline()
    process.send_signal(signal.SIGINT)
    _, said = process.communicate(timeout=60)
    assert process.returncode == 130
    assert b"Traceback" not in said


@pytest.mark.parametrize("verb", [["translate"], ["export", "--no-check"]])
def test_what_cannot_translate_is_refused(verb: list[str], data: Path, tmp_path: Path) -> None:
    pictures = tmp_path / "pictures"
    pictures.mkdir()
    settings = config.to_yaml(config.dump(recipe.load("cifar10-tiny")))
    (pictures / "recipe.yaml").write_text(settings, encoding="utf-8")
    to = [tmp_path / "exported"] if verb[0] == "export" else []
    for model, words in (
        (pictures, b"workload 'cifar10'"),
        (data, b"neither a run nor an"),
        (tmp_path / "none", b"there is no directory"),
    ):
        result = paceline(*verb, model, *to)
        assert result.returncode == 2
        assert words in result.stderr
        assert b"fix:" in result.stderr
        assert b"Traceback" not in result.stderr


def test_an_exported_model_has_no_other_checkpoint(exported: Path) -> None:
    result = paceline("translate", exported, "--checkpoint", "newest")
    assert result.returncode == 2
    assert b"step 7" in result.stderr
