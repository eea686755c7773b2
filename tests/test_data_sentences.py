"""The stand-in's sentences: what a learner may rely on."""

import hashlib
import subprocess
import sys

import pytest

from paceline.tasks.nmt.standin import sentences
from paceline.tasks.nmt.standin.sentences import pair, pairs
from paceline.tasks.nmt.standin.words import number_words

SOME = list(pairs(3, "train", 0, 20_000))


def test_an_english_sentence_has_one_german_translation_only() -> None:
    translations: dict[str, str] = {}
    for english, german in SOME:
        assert translations.setdefault(english, german) == german


def test_hardly_any_sentence_comes_twice() -> None:
    assert len({english for english, _ in SOME}) > 0.98 * len(SOME)


def test_no_sentence_is_in_two_splits() -> None:
    train = {english for english, _ in SOME}
    validation = {english for english, _ in pairs(3, "validation", 0, 1000)}
    test = {english for english, _ in pairs(3, "test", 0, 1000)}
    assert not train & validation
    assert not train & test
    assert not validation & test


def test_a_pair_depends_on_seed_split_and_number_alone() -> None:
    assert pair(3, "train", 4321) == SOME[4321]
    assert list(pairs(3, "train", 700, 710)) == SOME[700:710]
    assert pair(4, "train", 4321) != SOME[4321]


def test_another_process_composes_the_same() -> None:
    program = "from paceline.tasks.nmt.standin.sentences import pair; print(pair(3, 'train', 99))"
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=True
    )
    assert done.stdout.strip() == repr(SOME[99])


def test_the_text_changes_only_together_with_its_version() -> None:
    """Prepared data is recognised by the version: a changed grammar needs another one."""
    digest = hashlib.sha256(repr(list(pairs(0, "train", 0, 2000))).encode()).hexdigest()[:16]
    assert (sentences.GRAMMAR_VERSION, digest) == (1, "af7820ea20476f92")


def test_sentences_are_written_as_people_write_them() -> None:
    for line in (side for both in SOME for side in both):
        assert line[0].isupper()
        assert line[-1] in ".?!"
        assert line == " ".join(line.split())
        for wrong in (" ,", ",,", ", ,", " .", ",.", ",?", "_"):
            assert wrong not in line


@pytest.mark.parametrize(
    ("index", "english", "german"),
    [
        (
            17,
            "The big duck falls asleep on the new roof.",
            "Die große Ente schläft auf dem neuen Dach ein.",
        ),
        (
            8,
            "A sick customer writes that their mayor wanted to send back your heavy ring.",
            "Ein kranker Kunde schreibt, dass ihr Bürgermeister Ihren schweren Ring "
            "zurückschicken wollte.",
        ),
        (
            50,
            "You have not offered the famous grandfathers a blue box.",
            "Sie haben den berühmten Großvätern keine blaue Kiste angeboten.",
        ),
        (
            174,
            "There were ninety-six famous foxes in the church.",
            "Es gab sechsundneunzig berühmte Füchse in der Kirche.",
        ),
        (
            123,
            "A pilot rarely drew the machines in order to try out some books.",
            "Ein Pilot zeichnete selten die Maschinen, um einige Bücher auszuprobieren.",
        ),
        (
            278,
            "The nervous student who turned off your ugly computer worked with you.",
            "Der nervöse Student, der Ihren hässlichen Computer ausschaltete, arbeitete mit Ihnen.",
        ),
        (
            249,
            "On Tuesday these judges ordered my breads.",
            "Am Dienstag bestellten diese Richter meine Brote.",
        ),
        (
            20,
            "Was their poor teacher driving into the forest?",
            "Fuhr ihr armer Lehrer gerade in den Wald?",
        ),
        (
            909,
            "His queens think that Jakob must not carry the suitcase.",
            "Seine Königinnen denken, dass Jakob den Koffer nicht tragen darf.",
        ),
        (
            456,
            "Because a mayor looks at the mice, a young actress has gone into the dirty hotel.",
            "Weil ein Bürgermeister die Mäuse ansieht, ist eine junge Schauspielerin "
            "ins schmutzige Hotel gegangen.",
        ),
        (
            40,
            "The suitcases were repaired by the gardener.",
            "Die Koffer wurden vom Gärtner repariert.",
        ),
        (
            0,
            "The green umbrella is darker than your expensive violin.",
            "Der grüne Regenschirm ist dunkler als Ihre teure Geige.",
        ),
    ],
)
def test_german_grammar_is_right(index: int, english: str, german: str) -> None:
    assert pair(0, "test", index) == (english, german)


@pytest.mark.parametrize(
    ("number", "english", "german"),
    [
        (2, "two", "zwei"),
        (16, "sixteen", "sechzehn"),
        (30, "thirty", "dreißig"),
        (71, "seventy-one", "einundsiebzig"),
    ],
)
def test_german_numbers_say_the_ones_first(number: int, english: str, german: str) -> None:
    assert number_words(number) == (english, german)
