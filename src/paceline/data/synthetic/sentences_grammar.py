"""The grammar of the stand-in's sentences: noun phrases, verbs in their tenses, whole clauses.

A clause is drawn once and can then be said in English and in German, as a statement, as a question
or with the verb last. Whatever German leaves free (word order, the choice between two tenses) is
settled here by a rule, so that an English clause has one translation.

Words are in `sentences_words`; what kinds of sentences there are, in `sentences`.
"""

from collections.abc import Callable, Sequence
from typing import Final, NamedTuple, TypeVar

from paceline.data.synthetic import sentences_words as words
from paceline.data.synthetic.sentences_words import (
    ACC,
    DAT,
    GEN,
    NOM,
    PLURAL,
    Adjective,
    Noun,
    Verb,
)

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


_THE: Final = Determiner("the", _DER, _WEAK)
_A: Final = _like_ein("a", "ein", is_indefinite=True)
_NO: Final = _like_ein("no", "kein")
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
    *(((_THE, False),) * 9),
    *(((_THE, True),) * 4),
    *(((_A, False),) * 6),
    *((possessive, False) for possessive in _POSSESSIVES),
    *((possessive, True) for possessive in _POSSESSIVES[:3]),
    (_like_dieser("this", "dies"), False),
    (_like_dieser("these", "dies"), True),
)
_ANY: Final = (
    *PLAIN,
    (_like_dieser("every", "jed"), False),
    (_MANY, True),
    (_SOME, True),
    *((numeral, True) for numeral in NUMERALS[:5]),
)
THERE_IS: Final = ((_A, False), (_MANY, True), (_SOME, True), (_BARE, True))

_PRONOUNS: Final = (
    (("I", "me"), ("ich", "mich", "mir"), 0),
    (("he", "him"), ("er", "ihn", "ihm"), 1),
    (("she", "her"), ("sie", "sie", "ihr"), 1),
    (("we", "us"), ("wir", "uns", "uns"), 2),
    (("they", "them"), ("sie", "sie", "ihnen"), 2),
    (("you", "you"), ("Sie", "Sie", "Ihnen"), 2),
)
_REFLEXIVES: Final = {"ich": "mich", "wir": "uns"}
_RELATIVES: Final = (
    ("der", "den"),
    ("die", "die"),
    ("das", "das"),
    ("die", "die"),
)

_HABEN: Final = ("habe", "hat", "haben")
SEIN: Final = ("bin", "ist", "sind")
WAR: Final = ("war", "war", "waren")
WERDEN: Final = ("werde", "wird", "werden")
WURDE: Final = ("wurde", "wurde", "wurden")
BE: Final = ("am", "is", "are")
WAS: Final = ("was", "was", "were")
_HAVE: Final = ("have", "has", "have")
_DO: Final = ("do", "does", "do")

_MODALS: Final = (
    ("can", ("kann", "kann", "können")),
    ("must", ("muss", "muss", "müssen")),
    ("should", ("soll", "soll", "sollen")),
    ("may", ("darf", "darf", "dürfen")),
)
_MAY_NOT: Final = ("darf", "darf", "dürfen")
_WANTS: Final = ("will", "will", "wollen")
_WANTED: Final = ("wollte", "wollte", "wollten")
_HAD_TO: Final = ("musste", "musste", "mussten")

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
_FUTURE_TIMES: Final = words.FUTURE_TIMES * 4 + _AHEAD + _ON_WEEKDAY * 2 + _IN_MONTH * 2 + _AT_HOUR


def joined(*parts: str) -> str:
    return " ".join(filter(None, parts))


def with_preposition(preposition: str, german: str) -> str:
    first, _, rest = german.partition(" ")
    contracted = _CONTRACTIONS.get((preposition, first))
    return f"{contracted} {rest}" if contracted else f"{preposition} {german}"


# ---------------------------------------------------------------------------- noun phrases


def _noun_words(
    draw: Draw, determiner: Determiner, column: int, case: int, adjectives: Sequence[Adjective]
) -> tuple[str, str]:
    """The determiner and perhaps an adjective, in both languages, without the noun."""
    german = determiner.forms[column][case]
    if draw.below(3):
        return determiner.english, german
    adjective = draw.pick(adjectives)
    english = joined(determiner.english, adjective.english)
    return english, joined(german, adjective.stem + determiner.endings[column][case])


def _with_article(english: str) -> str:
    """'a' becomes 'an' before a vowel; 'uncle' and 'umbrella' are spoken as they are written."""
    if english.startswith("a ") and english[2] in "aeiou":
        return "an" + english[1:]
    return english


def noun_phrase(
    draw: Draw,
    noun: Noun,
    adjectives: Sequence[Adjective],
    case: int,
    choice: tuple[Determiner, bool],
) -> Phrase:
    determiner, is_plural = choice
    column = PLURAL if is_plural else noun.gender
    english, german = _noun_words(draw, determiner, column, case, adjectives)
    if is_plural:
        english_noun, german_noun = noun.english_plural, noun.plural[case]
    else:
        english_noun, german_noun = noun.english, noun.singular[case]
    return Phrase(
        _with_article(joined(english, english_noun)),
        joined(german, german_noun),
        2 if is_plural else 1,
    )


def _negatable_phrase(
    draw: Draw, noun: Noun, adjectives: Sequence[Adjective], case: int, is_negated: bool
) -> Phrase:
    """An object; German says 'kein' where English says 'not ... a'."""
    if not is_negated:
        return noun_phrase(draw, noun, adjectives, case, _object_choice(draw))
    determiner, is_plural = draw.pick(PLAIN)
    if not determiner.is_indefinite:
        return noun_phrase(draw, noun, adjectives, case, (determiner, is_plural))
    no = _NO._replace(english=determiner.english)
    return noun_phrase(draw, noun, adjectives, case, (no, is_plural))._replace(
        absorbs_negation=True
    )


def _object_choice(draw: Draw) -> tuple[Determiner, bool]:
    if draw.below(24) == 0:
        return (_NO, False) if draw.below(2) else (draw.pick(NUMERALS), True)
    return draw.pick(_ANY)


def draw_person(draw: Draw, case: int, depth: int) -> Phrase:
    """Somebody who acts or is acted upon: a pronoun, a name or a noun with what hangs on it."""
    kind = draw.below(24)
    if kind < 6:
        english, german, agreement = draw.pick(_PRONOUNS)
        return Phrase(english[0 if case == NOM else 1], german[case], agreement, is_pronoun=True)
    if kind < 9:
        name = draw.pick(words.NAMES)
        return Phrase(name, name, 1)
    if kind == 9 and depth:
        first, second = draw_plain_person(draw, case), draw_plain_person(draw, case)
        return Phrase(
            f"{first.english} and {second.english}", f"{first.german} und {second.german}", 2
        )
    if depth and kind < 13:
        return _modified(draw, draw.pick(words.PERSONS), words.PERSON_ADJECTIVES, case)
    return draw_plain_person(draw, case)


def draw_plain_person(draw: Draw, case: int) -> Phrase:
    noun = draw.pick(words.PERSONS)
    return noun_phrase(draw, noun, words.PERSON_ADJECTIVES, case, draw.pick(_ANY))


def _modified(draw: Draw, noun: Noun, adjectives: Sequence[Adjective], case: int) -> Phrase:
    """A noun with a genitive ('of the teacher') or a relative clause."""
    is_plural = draw.below(3) == 0
    phrase = noun_phrase(draw, noun, adjectives, case, (_THE, is_plural))
    if draw.below(2):
        owner = noun_phrase(
            draw, draw.pick(words.PERSONS), words.PERSON_ADJECTIVES, GEN, draw.pick(PLAIN)
        )
        english, german = f"of {owner.english}", owner.german
    else:
        english, german = _relative_clause(draw, noun, is_plural)
        german = f", {german},"
    return phrase._replace(
        english=f"{phrase.english} {english}", german=f"{phrase.german} {german}"
    )


def _relative_clause(draw: Draw, noun: Noun, is_plural: bool) -> tuple[str, str]:
    pronoun = _RELATIVES[PLURAL if is_plural else noun.gender]
    is_person = noun in _PERSON_SET
    if is_person and draw.below(2):
        subject = Phrase("who", pronoun[NOM], 2 if is_plural else 1, is_pronoun=True)
        clause = draw_clause(draw, subject, depth=0)
        return english_statement(clause), german_last(clause)
    subject = draw_person(draw, NOM, 0)
    verb = draw.pick(words.TAKES_PERSON if is_person else words.TAKES_THING)
    complement = Complement(joined(verb.particle, verb.preposition))
    group = draw_group(draw, verb, subject.agreement, False)
    clause = Clause(subject, group, False, complement, NOTHING, NOTHING, NOTHING)
    english_pronoun = "whom" if is_person else "that"
    return (
        f"{english_pronoun} {english_statement(clause)}",
        f"{pronoun[ACC]} {german_last(clause)}",
    )


_PERSON_SET: Final = frozenset(words.PERSONS)


def _thing(draw: Draw, is_negated: bool, depth: int) -> Phrase:
    noun = draw.pick(words.THINGS)
    if depth and not is_negated and draw.below(8) == 0:
        return _modified(draw, noun, words.THING_ADJECTIVES, ACC)
    return _negatable_phrase(draw, noun, words.THING_ADJECTIVES, ACC, is_negated)


def draw_place(draw: Draw) -> tuple[str, str]:
    if draw.below(4) == 0:
        english, german = draw.pick(words.CITIES)
        return f"in {english}", f"in {german}"
    place = draw.pick(words.PLACES)
    choice = (_THE, False) if draw.below(3) else draw.pick(PLAIN)
    phrase = noun_phrase(draw, place.noun, words.THING_ADJECTIVES, DAT, choice)
    english = f"{place.english_preposition} {phrase.english}"
    return english, with_preposition(place.preposition, phrase.german)


def _destination(draw: Draw) -> tuple[str, str]:
    kind = draw.below(3)
    if kind == 0:
        english, german = draw.pick(words.CITIES)
        return f"to {english}", f"nach {german}"
    place = draw.pick(words.PLACES)
    english_preposition, preposition, case = ("to", "zu", DAT)
    if kind == 1 and place.preposition == "in":
        english_preposition, preposition, case = ("into", "in", ACC)
    phrase = noun_phrase(draw, place.noun, words.THING_ADJECTIVES, case, (_THE, False))
    return f"{english_preposition} {phrase.english}", with_preposition(preposition, phrase.german)


# -------------------------------------------------------------------------------- verbs


def draw_group(draw: Draw, verb: Verb, agreement: int, is_negated: bool) -> Group:
    return draw.pick(_TENSES)(draw, verb, agreement, is_negated)


def simple_group(verb: Verb, agreement: int, is_past: bool) -> Group:
    if is_past:
        finite, main, support = verb.past[agreement], verb.english_past, "did"
    else:
        finite, support = verb.present[agreement], _DO[agreement]
        main = verb.english_present if agreement == 1 else verb.english
    times = PAST_TIMES if is_past else PRESENT_TIMES
    return Group(
        "", main, support, verb.english, finite, verb.prefix, verb.prefix + finite, "", times
    )


def _present(draw: Draw, verb: Verb, agreement: int, is_negated: bool) -> Group:
    return simple_group(verb, agreement, is_past=False)


def _past(draw: Draw, verb: Verb, agreement: int, is_negated: bool) -> Group:
    return simple_group(verb, agreement, is_past=True)


def _progressive(draw: Draw, verb: Verb, agreement: int, is_negated: bool) -> Group:
    """German has no progressive; 'gerade' (right now) says it."""
    is_past = draw.below(2) == 0
    simple = simple_group(verb, agreement, is_past)
    if is_negated or verb.english in words.NEVER_PROGRESSIVE:
        return simple
    auxiliary = (WAS if is_past else BE)[agreement]
    return simple._replace(
        auxiliary=auxiliary, main=verb.english_progressive, marker="gerade", times=()
    )


def _perfect(draw: Draw, verb: Verb, agreement: int, is_negated: bool) -> Group:
    finite = (SEIN if verb.takes_sein else _HABEN)[agreement]
    participle = verb.participle
    last = f"{participle} {finite}"
    return Group(
        _HAVE[agreement], verb.english_participle, "", "", finite, participle, last, "", ()
    )


def _with_infinitive(verb: Verb, finite: str) -> tuple[str, str, str]:
    infinitive = verb.prefix + verb.infinitive
    return finite, infinitive, f"{infinitive} {finite}"


def _future(draw: Draw, verb: Verb, agreement: int, is_negated: bool) -> Group:
    german = _with_infinitive(verb, WERDEN[agreement])
    return Group("will", verb.english, "", "", *german, "", _FUTURE_TIMES)


def _modal(draw: Draw, verb: Verb, agreement: int, is_negated: bool) -> Group:
    english, forms = draw.pick(_MODALS)
    if english == "must" and is_negated:  # what one must not do, one may not do
        forms = _MAY_NOT
    german = _with_infinitive(verb, forms[agreement])
    return Group(english, verb.english, "", "", *german, "", PRESENT_TIMES)


def _wants_or_had_to(draw: Draw, verb: Verb, agreement: int, is_negated: bool) -> Group:
    kind = draw.below(3)
    if kind == 0:
        finite = "wants" if agreement == 1 else "want"
        english = (f"{finite} to {verb.english}", _DO[agreement], f"want to {verb.english}")
        german = _with_infinitive(verb, _WANTS[agreement])
        return Group("", *english, *german, "", PRESENT_TIMES)
    past, base, forms = ("wanted", "want", _WANTED) if kind == 1 else ("had", "have", _HAD_TO)
    english = (f"{past} to {verb.english}", "did", f"{base} to {verb.english}")
    return Group("", *english, *_with_infinitive(verb, forms[agreement]), "", PAST_TIMES)


_Tense = Callable[[Draw, Verb, int, bool], Group]
_TENSES: Final[tuple[_Tense, ...]] = (
    *((_present,) * 4),
    *((_past,) * 4),
    *((_perfect,) * 3),
    *((_future,) * 2),
    *((_modal,) * 3),
    _wants_or_had_to,
    _progressive,
)


# --------------------------------------------------------------- what a verb asks for


def _object_words(verb: Verb, phrase: Phrase) -> str:
    if verb.particle and phrase.is_pronoun:
        return f"{phrase.english} {verb.particle}"
    return joined(verb.particle, verb.preposition, phrase.english)


def _one_object(verb: Verb, phrase: Phrase) -> Predicate:
    english = _object_words(verb, phrase)
    if phrase.is_pronoun:
        return Predicate(verb, Complement(english, pronouns=phrase.german))
    return Predicate(
        verb,
        Complement(english, objects=phrase.german, absorbs_negation=phrase.absorbs_negation),
    )


def _without_object(draw: Draw, is_negated: bool, depth: int) -> Predicate:
    verb = draw.pick(words.INTRANSITIVE)
    return Predicate(verb, Complement(verb.particle))


def _with_person(draw: Draw, is_negated: bool, depth: int) -> Predicate:
    verb = draw.pick(words.TAKES_PERSON)
    if draw.below(4):
        return _one_object(verb, draw_person(draw, ACC, depth))
    noun = draw.pick(words.ANIMALS)
    phrase = _negatable_phrase(draw, noun, words.PERSON_ADJECTIVES, ACC, is_negated)
    return _one_object(verb, phrase)


def _with_thing(draw: Draw, is_negated: bool, depth: int) -> Predicate:
    return _one_object(draw.pick(words.TAKES_THING), _thing(draw, is_negated, depth))


def _with_food(draw: Draw, is_negated: bool, depth: int) -> Predicate:
    noun = draw.pick(words.FOODS)
    phrase = _negatable_phrase(draw, noun, words.FOOD_ADJECTIVES, ACC, is_negated)
    return _one_object(draw.pick(words.TAKES_FOOD), phrase)


def _with_drink(draw: Draw, is_negated: bool, depth: int) -> Predicate:
    noun = draw.pick(words.DRINKS)
    german = noun.singular[ACC]
    if is_negated:
        german = f"{_NO.forms[noun.gender][ACC]} {german}"
    phrase = Phrase(noun.english, german, 1, absorbs_negation=is_negated)
    return _one_object(draw.pick(words.TAKES_DRINK), phrase)


def _with_dative(draw: Draw, is_negated: bool, depth: int) -> Predicate:
    return _one_object(draw.pick(words.TAKES_DATIVE), draw_person(draw, DAT, depth))


def _with_two(draw: Draw, is_negated: bool, depth: int) -> Predicate:
    verb = draw.pick(words.TAKES_TWO)
    receiver = draw_person(draw, DAT, 0)
    thing = _thing(draw, is_negated, 0)
    english = f"{receiver.english} {thing.english}"
    if receiver.is_pronoun:
        complement = Complement(english, receiver.german, thing.german, "", thing.absorbs_negation)
    else:
        objects = f"{receiver.german} {thing.german}"
        complement = Complement(english, "", objects, "", thing.absorbs_negation)
    return Predicate(verb, complement)


def _with_preposition_object(draw: Draw, is_negated: bool, depth: int) -> Predicate:
    verb, preposition, case = draw.pick(words.TAKES_PREPOSITION)
    phrase = draw_person(draw, case, depth)
    late = with_preposition(preposition, phrase.german)
    return Predicate(verb, Complement(f"{verb.preposition} {phrase.english}", late=late))


def _with_destination(draw: Draw, is_negated: bool, depth: int) -> Predicate:
    english, german = _destination(draw)
    return Predicate(draw.pick(words.MOTION), Complement(english, late=german))


def _as_animal(draw: Draw, is_negated: bool, depth: int) -> Predicate:
    verb = draw.pick(words.ANIMAL_INTRANSITIVE)
    return Predicate(verb, Complement(verb.particle))


def _animal_with_person(draw: Draw, is_negated: bool, depth: int) -> Predicate:
    return _one_object(draw.pick(words.ANIMAL_TAKES_PERSON), draw_person(draw, ACC, depth))


_PREDICATES: Final = (
    *((_without_object,) * 3),
    *((_with_person,) * 4),
    *((_with_thing,) * 6),
    *((_with_food,) * 2),
    _with_drink,
    *((_with_dative,) * 2),
    *((_with_two,) * 3),
    *((_with_preposition_object,) * 2),
    *((_with_destination,) * 2),
)
_ANIMAL_PREDICATES: Final = (_as_animal, _animal_with_person, _with_preposition_object)


def draw_predicate(draw: Draw, subject: Phrase, is_negated: bool, depth: int) -> Predicate:
    choices = _ANIMAL_PREDICATES if subject.is_animal else _PREDICATES
    verb, complement = draw.pick(choices)(draw, is_negated, depth)
    if verb.is_reflexive:
        complement = complement._replace(pronouns=_REFLEXIVES.get(subject.german, "sich"))
    return Predicate(verb, complement)


# ------------------------------------------------------------------------------ clauses


def draw_clause(draw: Draw, subject: Phrase, depth: int, may_negate: bool = True) -> Clause:
    is_negated = may_negate and draw.below(7) == 0
    verb, complement = draw_predicate(draw, subject, is_negated, depth)
    group = draw_group(draw, verb, subject.agreement, is_negated)
    frequency = NOTHING
    if not is_negated and not group.marker and draw.below(10) == 0:
        frequency = draw.pick(words.FREQUENCIES)
    has_place = verb not in _MOTION_SET and draw.below(5) == 0
    place = draw_place(draw) if has_place else NOTHING
    has_time = bool(group.times) and not frequency[0] and draw.below(3) == 0
    time = draw.pick(group.times) if has_time else NOTHING
    return Clause(subject, group, is_negated, complement, frequency, place, time)


_MOTION_SET: Final = frozenset(words.MOTION)


def _english_verb(clause: Clause) -> str:
    group, frequency = clause.group, clause.frequency[0]
    if group.auxiliary:
        negation = "not" if clause.is_negated else ""
        auxiliary = group.auxiliary
        if negation and auxiliary == "can":
            auxiliary, negation = "cannot", ""
        return joined(auxiliary, negation, frequency, group.main)
    if clause.is_negated:
        return f"{group.support} not {group.base}"
    return joined(frequency, group.main)


def english_statement(clause: Clause, with_time: bool = True) -> str:
    return joined(
        clause.subject.english,
        _english_verb(clause),
        clause.complement.english,
        clause.place[0],
        clause.time[0] if with_time else "",
    )


def english_question(clause: Clause) -> str:
    group = clause.group
    return joined(
        group.auxiliary or group.support,
        clause.subject.english,
        clause.frequency[0],
        group.main if group.auxiliary else group.base,
        clause.complement.english,
        clause.place[0],
        clause.time[0],
    )


def _german_middle(clause: Clause, with_time: bool = True) -> str:
    """Pronouns, time, objects, 'nicht', and what a preposition leads."""
    complement = clause.complement
    is_marked = clause.is_negated and not complement.absorbs_negation
    return joined(
        complement.pronouns,
        clause.time[1] if with_time else "",
        clause.frequency[1] or clause.group.marker,
        complement.objects,
        "nicht" if is_marked else "",
        complement.late,
        clause.place[1],
    )


def german_statement(clause: Clause) -> str:
    group = clause.group
    return joined(clause.subject.german, group.finite, _german_middle(clause), group.right)


def german_inverted(clause: Clause, with_time: bool = True) -> str:
    """The finite verb before the subject: questions, and after anything that comes first."""
    group = clause.group
    middle = _german_middle(clause, with_time)
    return joined(group.finite, clause.subject.german, middle, group.right)


def german_last(clause: Clause) -> str:
    """The finite verb at the end, as every subordinate clause has it."""
    return joined(clause.subject.german, _german_middle(clause), clause.group.last)
