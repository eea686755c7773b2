"""The grammar of the stand-in's sentences: noun phrases, what verbs ask for, whole clauses.

A clause is drawn once and can then be said in English and in German, as a statement, as a question
or with the verb last. Whatever German leaves free (word order, the choice between two tenses) is
settled here by a rule, so that an English clause has one translation.

Words are in `sentences_words`; what kinds of sentences there are, in `sentences`.
"""

from collections.abc import Sequence
from typing import Final

from paceline.tasks.nmt.standin import words
from paceline.tasks.nmt.standin.forms import (
    ANY_DETERMINER,
    NO_ARTICLE,
    NOTHING,
    NUMERALS,
    PLAIN,
    PRONOUNS,
    REFLEXIVES,
    RELATIVES,
    THE,
    Clause,
    Complement,
    Determiner,
    Draw,
    Phrase,
    Predicate,
    joined,
    with_preposition,
)
from paceline.tasks.nmt.standin.verbs import draw_group
from paceline.tasks.nmt.standin.words import (
    ACC,
    DAT,
    GEN,
    NOM,
    PLURAL,
    Adjective,
    Noun,
    Verb,
)


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
    no = NO_ARTICLE._replace(english=determiner.english)
    return noun_phrase(draw, noun, adjectives, case, (no, is_plural))._replace(
        absorbs_negation=True
    )


def _object_choice(draw: Draw) -> tuple[Determiner, bool]:
    if draw.below(24) == 0:
        return (NO_ARTICLE, False) if draw.below(2) else (draw.pick(NUMERALS), True)
    return draw.pick(ANY_DETERMINER)


def draw_person(draw: Draw, case: int, depth: int) -> Phrase:
    """Somebody who acts or is acted upon: a pronoun, a name or a noun with what hangs on it."""
    kind = draw.below(24)
    if kind < 6:
        english, german, agreement = draw.pick(PRONOUNS)
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
    return noun_phrase(draw, noun, words.PERSON_ADJECTIVES, case, draw.pick(ANY_DETERMINER))


def _modified(draw: Draw, noun: Noun, adjectives: Sequence[Adjective], case: int) -> Phrase:
    """A noun with a genitive ('of the teacher') or a relative clause."""
    is_plural = draw.below(3) == 0
    phrase = noun_phrase(draw, noun, adjectives, case, (THE, is_plural))
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
    pronoun = RELATIVES[PLURAL if is_plural else noun.gender]
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
    choice = (THE, False) if draw.below(3) else draw.pick(PLAIN)
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
    phrase = noun_phrase(draw, place.noun, words.THING_ADJECTIVES, case, (THE, False))
    return f"{english_preposition} {phrase.english}", with_preposition(preposition, phrase.german)


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
        german = f"{NO_ARTICLE.forms[noun.gender][ACC]} {german}"
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
        complement = complement._replace(pronouns=REFLEXIVES.get(subject.german, "sich"))
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
