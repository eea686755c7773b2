"""What the stand-in's sentences are put together from: phrases, determiners, endings, times.

A `Draw` makes the choices. Words are in `sentences_words`.
"""

from collections.abc import Sequence
from typing import Final, NamedTuple, TypeVar

from paceline.tasks.nmt.standin import words
from paceline.tasks.nmt.standin.words import Verb

_MASK: Final = (1 << 64) - 1
_Item = TypeVar("_Item")


class Draw:
    """A stream of choices: a 64-bit linear congruential generator, read from its upper bits.

    `random.Random` costs as much to seed as a whole sentence costs to compose.
    """

    __slots__ = ("state",)

    def __init__(self, state: int) -> None:
        self.state = state

    def below(self, limit: int) -> int:
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) & _MASK
        return (self.state >> 33) % limit

    def pick(self, items: Sequence[_Item]) -> _Item:
        self.state = (self.state * 6364136223846793005 + 1442695040888963407) & _MASK
        return items[(self.state >> 33) % len(items)]


class Phrase(NamedTuple):
    """A subject or an object. `agreement`: 0 first person singular, 1 third, 2 plural."""

    english: str
    german: str
    agreement: int
    is_pronoun: bool = False
    absorbs_negation: bool = False
    is_animal: bool = False


class Determiner(NamedTuple):
    """German forms and the endings of a following adjective, both by gender or plural, by case."""

    english: str
    forms: tuple[tuple[str, ...], ...]
    endings: tuple[tuple[str, ...], ...]
    is_indefinite: bool = False


class Group(NamedTuple):
    """The verb of a clause in one tense.

    English is `auxiliary main`; without an auxiliary, `support base` ("does buy") is what a
    question or "not" needs. German is `finite ... right` in a main clause and `last` at the end.
    """

    auxiliary: str
    main: str
    support: str
    base: str
    finite: str
    right: str
    last: str
    marker: str
    times: tuple[tuple[str, str], ...]


class Complement(NamedTuple):
    """What the verb asks for; the German parts are kept apart because they go to different places.

    Pronouns come first in the German middle field, `late` (a preposition's phrase) after "nicht".
    """

    english: str
    pronouns: str = ""
    objects: str = ""
    late: str = ""
    absorbs_negation: bool = False


class Predicate(NamedTuple):
    verb: Verb
    complement: Complement


class Clause(NamedTuple):
    subject: Phrase
    group: Group
    is_negated: bool
    complement: Complement
    frequency: tuple[str, str]
    place: tuple[str, str]
    time: tuple[str, str]


NOTHING: Final = ("", "")

_DER: Final = (
    ("der", "den", "dem", "des"),
    ("die", "die", "der", "der"),
    ("das", "das", "dem", "des"),
    ("die", "die", "den", "der"),
)
_EIN_ENDINGS: Final = (
    ("", "en", "em", "es"),
    ("e", "e", "er", "er"),
    ("", "", "em", "es"),
    ("e", "e", "en", "er"),
)
_DIESER_ENDINGS: Final = (
    ("er", "en", "em", "es"),
    ("e", "e", "er", "er"),
    ("es", "es", "em", "es"),
    ("e", "e", "en", "er"),
)
_WEAK: Final = (
    ("e", "en", "en", "en"),
    ("e", "e", "en", "en"),
    ("e", "e", "en", "en"),
    ("en", "en", "en", "en"),
)
_MIXED: Final = (
    ("er", "en", "en", "en"),
    ("e", "e", "en", "en"),
    ("es", "es", "en", "en"),
    ("en", "en", "en", "en"),
)
_STRONG: Final = (
    ("er", "en", "em", "en"),
    ("e", "e", "er", "er"),
    ("es", "es", "em", "en"),
    ("e", "e", "en", "er"),
)


def _inflected(stem: str, endings: tuple[tuple[str, ...], ...]) -> tuple[tuple[str, ...], ...]:
    return tuple(tuple(stem + ending for ending in row) for row in endings)


def _like_ein(english: str, stem: str, is_indefinite: bool = False) -> Determiner:
    return Determiner(english, _inflected(stem, _EIN_ENDINGS), _MIXED, is_indefinite)


def _like_dieser(english: str, stem: str) -> Determiner:
    return Determiner(english, _inflected(stem, _DIESER_ENDINGS), _WEAK)


def _unchanging(english: str, german: str, is_indefinite: bool = False) -> Determiner:
    return Determiner(english, ((german,) * 4,) * 4, _STRONG, is_indefinite)


THE: Final = Determiner("the", _DER, _WEAK)
_A: Final = _like_ein("a", "ein", is_indefinite=True)
NO_ARTICLE: Final = _like_ein("no", "kein")
_BARE: Final = _unchanging("", "", is_indefinite=True)
_MANY: Final = Determiner("many", _inflected("viel", _DIESER_ENDINGS), _STRONG)
_SOME: Final = Determiner("some", _inflected("einig", _DIESER_ENDINGS), _STRONG)
_POSSESSIVES: Final = tuple(
    _like_ein(english, german)
    for english, german in (
        ("my", "mein"),
        ("his", "sein"),
        ("her", "ihr"),
        ("our", "unser"),
        ("their", "ihr"),
        ("your", "Ihr"),
    )
)
NUMERALS: Final = tuple(_unchanging(english, german) for english, german in words.NUMBERS)

# (determiner, is plural): as often as they stand here
PLAIN: Final = (
    *(((THE, False),) * 9),
    *(((THE, True),) * 4),
    *(((_A, False),) * 6),
    *((possessive, False) for possessive in _POSSESSIVES),
    *((possessive, True) for possessive in _POSSESSIVES[:3]),
    (_like_dieser("this", "dies"), False),
    (_like_dieser("these", "dies"), True),
)
ANY_DETERMINER: Final = (
    *PLAIN,
    (_like_dieser("every", "jed"), False),
    (_MANY, True),
    (_SOME, True),
    *((numeral, True) for numeral in NUMERALS[:5]),
)
THERE_IS: Final = ((_A, False), (_MANY, True), (_SOME, True), (_BARE, True))

PRONOUNS: Final = (
    (("I", "me"), ("ich", "mich", "mir"), 0),
    (("he", "him"), ("er", "ihn", "ihm"), 1),
    (("she", "her"), ("sie", "sie", "ihr"), 1),
    (("we", "us"), ("wir", "uns", "uns"), 2),
    (("they", "them"), ("sie", "sie", "ihnen"), 2),
    (("you", "you"), ("Sie", "Sie", "Ihnen"), 2),
)
REFLEXIVES: Final = {"ich": "mich", "wir": "uns"}
RELATIVES: Final = (
    ("der", "den"),
    ("die", "die"),
    ("das", "das"),
    ("die", "die"),
)

HABEN: Final = ("habe", "hat", "haben")
SEIN: Final = ("bin", "ist", "sind")
WAR: Final = ("war", "war", "waren")
WERDEN: Final = ("werde", "wird", "werden")
WURDE: Final = ("wurde", "wurde", "wurden")
BE: Final = ("am", "is", "are")
WAS: Final = ("was", "was", "were")
HAVE: Final = ("have", "has", "have")
DO_FORMS: Final = ("do", "does", "do")

MODALS: Final = (
    ("can", ("kann", "kann", "können")),
    ("must", ("muss", "muss", "müssen")),
    ("should", ("soll", "soll", "sollen")),
    ("may", ("darf", "darf", "dürfen")),
)
MAY_NOT: Final = ("darf", "darf", "dürfen")
WANTS: Final = ("will", "will", "wollen")
WANTED: Final = ("wollte", "wollte", "wollten")
HAD_TO: Final = ("musste", "musste", "mussten")

_CONTRACTIONS: Final = {
    ("in", "dem"): "im",
    ("in", "das"): "ins",
    ("von", "dem"): "vom",
    ("zu", "dem"): "zum",
    ("zu", "der"): "zur",
}


def _ago_and_ahead() -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...]]:
    ago, ahead = [], []
    for english_unit, german_unit in (("days", "Tagen"), ("weeks", "Wochen"), ("years", "Jahren")):
        for english, german in words.NUMBERS[:8]:
            ago.append((f"{english} {english_unit} ago", f"vor {german} {german_unit}"))
            ahead.append((f"in {english} {english_unit}", f"in {german} {german_unit}"))
    return tuple(ago), tuple(ahead)


_AGO, _AHEAD = _ago_and_ahead()
_ON_WEEKDAY: Final = tuple((f"on {english}", f"am {german}") for english, german in words.WEEKDAYS)
_IN_MONTH: Final = tuple((f"in {english}", f"im {german}") for english, german in words.MONTHS)
_AT_HOUR: Final = tuple(
    (f"at {english} o'clock", f"um {german} Uhr") for english, german in words.NUMBERS[:11]
)
_IN_YEAR: Final = tuple((f"in {year}", f"im Jahr {year}") for year in range(1950, 2030, 3))
PRESENT_TIMES: Final = words.PRESENT_TIMES
PAST_TIMES: Final = (
    words.PAST_TIMES * 4 + _AGO + _ON_WEEKDAY * 2 + _IN_MONTH * 2 + _AT_HOUR + _IN_YEAR
)
FUTURE_TIMES: Final = words.FUTURE_TIMES * 4 + _AHEAD + _ON_WEEKDAY * 2 + _IN_MONTH * 2 + _AT_HOUR


def joined(*parts: str) -> str:
    return " ".join(filter(None, parts))


def with_preposition(preposition: str, german: str) -> str:
    first, _, rest = german.partition(" ")
    contracted = _CONTRACTIONS.get((preposition, first))
    return f"{contracted} {rest}" if contracted else f"{preposition} {german}"
