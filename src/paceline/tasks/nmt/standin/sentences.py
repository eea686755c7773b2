"""English-German sentence pairs composed from a grammar: the stand-in for real parallel text.

Every pair is a pure function of (seed, split, index), so any slice can be made anywhere and twice.
The German is a function of the English sentence, so that a small model can learn the whole of it.
What has to be learned is what makes German hard: gender, number and case on articles, adjectives
and pronouns; the verb second, or last in a subordinate clause; separable verbs, verb brackets of
modals, perfect and future; prepositions that ask for a case; "nicht" against "kein"; numbers.

Here are the kinds of sentences and the pairs; clauses come from `sentences_grammar`, words from
`sentences_words`. Nothing here writes files.
"""

import zlib
from collections.abc import Iterator
from hashlib import blake2b
from typing import Final

from paceline.tasks.nmt.standin import words
from paceline.tasks.nmt.standin.forms import (
    BE,
    NOTHING,
    NUMERALS,
    PAST_TIMES,
    PLAIN,
    PRESENT_TIMES,
    SEIN,
    THERE_IS,
    WAR,
    WAS,
    WERDEN,
    WURDE,
    Clause,
    Complement,
    Draw,
    Phrase,
    joined,
    with_preposition,
)
from paceline.tasks.nmt.standin.grammar import (
    draw_clause,
    draw_person,
    draw_place,
    draw_plain_person,
    draw_predicate,
    english_question,
    english_statement,
    german_inverted,
    german_last,
    german_statement,
    noun_phrase,
)
from paceline.tasks.nmt.standin.verbs import draw_group, simple_group
from paceline.tasks.nmt.standin.words import ACC, DAT, NOM

GRAMMAR_VERSION: Final = 1

# A sentence belongs to one split by its own checksum, so no two splits can share a sentence.
_NUM_SHARES: Final = 16


def _subject(draw: Draw) -> Phrase:
    if draw.below(10) == 0:
        noun = draw.pick(words.ANIMALS)
        phrase = noun_phrase(draw, noun, words.PERSON_ADJECTIVES, NOM, draw.pick(PLAIN))
        return phrase._replace(is_animal=True)
    return draw_person(draw, NOM, 1)


def _free_clause(draw: Draw, depth: int = 0) -> Clause:
    return draw_clause(draw, _subject(draw), depth)


def _statement(draw: Draw) -> tuple[str, str]:
    clause = _free_clause(draw, depth=1)
    if clause.time[0] and draw.below(2):
        english = f"{clause.time[0]} {english_statement(clause, with_time=False)}."
        return english, f"{clause.time[1]} {german_inverted(clause, with_time=False)}."
    return f"{english_statement(clause)}.", f"{german_statement(clause)}."


_CONJUNCTIONS: Final = (
    ("because", "weil"),
    ("although", "obwohl"),
    ("if", "wenn"),
    ("while", "während"),
    ("before", "bevor"),
)
_WEATHER: Final = (
    ("it is raining", "es regnet"),
    ("it is snowing", "es schneit"),
    ("it was raining", "es regnete"),
    ("the sun is shining", "die Sonne scheint"),
    ("it is very cold", "es sehr kalt ist"),
)


def _subordinate_words(draw: Draw) -> tuple[str, str]:
    english, german = draw.pick(_CONJUNCTIONS)
    if draw.below(10) == 0:
        weather = draw.pick(_WEATHER)
        return f"{english} {weather[0]}", f"{german} {weather[1]}"
    clause = _free_clause(draw)
    return f"{english} {english_statement(clause)}", f"{german} {german_last(clause)}"


def _subordinate(draw: Draw) -> tuple[str, str]:
    english, german = _subordinate_words(draw)
    main = _free_clause(draw)
    if draw.below(3):
        return f"{english_statement(main)} {english}.", f"{german_statement(main)}, {german}."
    return f"{english}, {english_statement(main)}.", f"{german}, {german_inverted(main)}."


def _reported(draw: Draw) -> tuple[str, str]:
    speaker = draw_person(draw, NOM, 0)
    group = simple_group(draw.pick(words.TAKES_CLAUSE), speaker.agreement, draw.below(2) == 0)
    clause = _free_clause(draw)
    english = f"{speaker.english} {group.main} that {english_statement(clause)}."
    return english, f"{speaker.german} {group.finite}, dass {german_last(clause)}."


def _yes_or_no(draw: Draw) -> tuple[str, str]:
    clause = draw_clause(draw, _subject(draw), 0, may_negate=False)
    return f"{english_question(clause)}?", f"{german_inverted(clause)}?"


_QUESTION_WORDS: Final = (("where", "wo"), ("when", "wann"), ("why", "warum"))


def _question_word(draw: Draw) -> tuple[str, str]:
    kind = draw.below(3)
    if kind == 0:
        clause = draw_clause(draw, Phrase("who", "wer", 1), 0)
        return f"{english_statement(clause)}?", f"{german_statement(clause)}?"
    if kind == 1:
        verb = draw.pick(words.TAKES_THING)
        subject = draw_person(draw, NOM, 0)
        complement = Complement(joined(verb.particle, verb.preposition))
        group = draw_group(draw, verb, subject.agreement, False)
        clause = Clause(subject, group, False, complement, NOTHING, NOTHING, NOTHING)
        return f"what {english_question(clause)}?", f"was {german_inverted(clause)}?"
    english, german = draw.pick(_QUESTION_WORDS)
    clause = draw_clause(draw, draw_person(draw, NOM, 0), 0, may_negate=False)
    clause = clause._replace(frequency=NOTHING, place=NOTHING, time=NOTHING)
    return f"{english} {english_question(clause)}?", f"{german} {german_inverted(clause)}?"


def _coordination(draw: Draw) -> tuple[str, str]:
    first, second = _free_clause(draw), _free_clause(draw)
    english, german = (" and", " und") if draw.below(2) else (", but", ", aber")
    return (
        f"{english_statement(first)}{english} {english_statement(second)}.",
        f"{german_statement(first)}{german} {german_statement(second)}.",
    )


def _copula(draw: Draw) -> tuple[str, str]:
    is_thing = draw.below(2) == 0
    adjectives = words.THING_ADJECTIVES if is_thing else words.PERSON_ADJECTIVES
    nouns = words.THINGS if is_thing else words.PERSONS
    is_past = draw.below(2)
    subject = noun_phrase(draw, draw.pick(nouns), adjectives, NOM, draw.pick(PLAIN))
    english_be = (WAS if is_past else BE)[subject.agreement]
    german_be = (WAR if is_past else SEIN)[subject.agreement]
    adjective = draw.pick(adjectives)
    if draw.below(2):
        other = noun_phrase(draw, draw.pick(nouns), adjectives, NOM, draw.pick(PLAIN))
        comparative = adjective.english_comparative.replace("_", " ")
        english = f"{subject.english} {english_be} {comparative} than {other.english}."
        return english, f"{subject.german} {german_be} {adjective.comparative} als {other.german}."
    english_degree, german_degree = draw.pick(_DEGREES)
    english = joined(subject.english, english_be, english_degree, adjective.english)
    return f"{english}.", f"{joined(subject.german, german_be, german_degree, adjective.german)}."


_DEGREES: Final = (
    NOTHING,
    ("very", "sehr"),
    ("not", "nicht"),
    ("too", "zu"),
    ("not very", "nicht sehr"),
)
_PASSIVE_VERBS: Final = tuple(verb for verb in words.TAKES_THING if not verb.preposition)


def _passive(draw: Draw) -> tuple[str, str]:
    verb = draw.pick(_PASSIVE_VERBS)
    thing = noun_phrase(
        draw, draw.pick(words.THINGS), words.THING_ADJECTIVES, NOM, draw.pick(PLAIN)
    )
    agent = draw_plain_person(draw, DAT)
    is_past = draw.below(3) > 0
    times = PAST_TIMES if is_past else PRESENT_TIMES
    time = draw.pick(times) if draw.below(2) else NOTHING
    negation = ("not", "nicht") if draw.below(6) == 0 else NOTHING
    english = joined(
        thing.english,
        (WAS if is_past else BE)[thing.agreement],
        negation[0],
        verb.english_participle,
        verb.particle,
        f"by {agent.english}",
        time[0],
    )
    german = joined(
        thing.german,
        (WURDE if is_past else WERDEN)[thing.agreement],
        time[1],
        negation[1],
        with_preposition("von", agent.german),
        verb.participle,
    )
    return f"{english}.", f"{german}."


def _infinitive(draw: Draw) -> tuple[str, str]:
    """'tries to open the door' and '... in order to open the door'."""
    subject = draw_person(draw, NOM, 0)
    verb, complement = draw_predicate(draw, subject, False, 0)
    with_zu = f"{verb.prefix}zu{verb.infinitive}" if verb.prefix else f"zu {verb.infinitive}"
    german_tail = joined(complement.pronouns, complement.objects, complement.late, with_zu)
    english_tail = joined("to", verb.english, complement.english)
    if draw.below(2):
        main = draw_clause(draw, subject, 0)
        return (
            f"{english_statement(main)} in order {english_tail}.",
            f"{german_statement(main)}, um {german_tail}.",
        )
    group = simple_group(draw.pick(words.TAKES_INFINITIVE), subject.agreement, draw.below(2) == 0)
    return (
        f"{subject.english} {group.main} {english_tail}.",
        f"{subject.german} {group.finite}, {german_tail}.",
    )


def _request(draw: Draw) -> tuple[str, str]:
    verb, complement = draw_predicate(draw, Phrase("you", "Sie", 2), False, 0)
    english = joined("please", verb.english, complement.english)
    german = joined(
        "bitte",
        verb.infinitive,
        "Sie",
        complement.pronouns,
        complement.objects,
        complement.late,
        verb.prefix,
    )
    return f"{english}!", f"{german}!"


def _existence(draw: Draw) -> tuple[str, str]:
    choice = draw.pick(THERE_IS) if draw.below(2) else (draw.pick(NUMERALS), True)
    is_thing = draw.below(2) == 0
    nouns = words.THINGS if is_thing else words.ANIMALS
    adjectives = words.THING_ADJECTIVES if is_thing else words.PERSON_ADJECTIVES
    phrase = noun_phrase(draw, draw.pick(nouns), adjectives, ACC, choice)
    english_place, german_place = draw_place(draw)
    is_past = draw.below(2)
    english = f"there {(WAS if is_past else BE)[phrase.agreement]} {phrase.english}"
    german = f"es {'gab' if is_past else 'gibt'} {phrase.german}"
    return f"{english} {english_place}.", f"{german} {german_place}."


_SENTENCES: Final = (
    *((_statement,) * 16),
    *((_subordinate,) * 5),
    *((_reported,) * 3),
    *((_yes_or_no,) * 3),
    *((_question_word,) * 3),
    *((_coordination,) * 2),
    *((_copula,) * 3),
    *((_passive,) * 3),
    *((_infinitive,) * 3),
    _request,
    *((_existence,) * 2),
)


def _finished(sentence: str) -> str:
    """A capital at the start, and one comma where a relative clause and its sentence both end."""
    if "," in sentence:
        sentence = sentence.replace(" ,", ",").replace(",,", ",")
        sentence = sentence[:-2] + sentence[-1] if sentence[-2] == "," else sentence
    return sentence[0].upper() + sentence[1:]


def _split_of(english: str) -> str:
    share = zlib.crc32(english.encode()) % _NUM_SHARES
    return "validation" if share == 0 else "test" if share == 1 else "train"


def pair(seed: int, split: str, index: int) -> tuple[str, str]:
    """Pair `index` of a split (train, validation or test): (English, German)."""
    key = blake2b(f"{seed}/{split}/{index}".encode(), digest_size=8).digest()
    draw = Draw(int.from_bytes(key, "little"))
    while True:
        english, german = draw.pick(_SENTENCES)(draw)
        english = _finished(english)
        if _split_of(english) == split:
            return english, _finished(german)


def pairs(seed: int, split: str, start: int, stop: int) -> Iterator[tuple[str, str]]:
    for index in range(start, stop):
        yield pair(seed, split, index)
