"""Verbs of the stand-in in their tenses, with the German parts that go to different places."""

from collections.abc import Callable
from typing import Final

from paceline.tasks.nmt.standin import words
from paceline.tasks.nmt.standin.forms import (
    BE,
    DO_FORMS,
    FUTURE_TIMES,
    HABEN,
    HAD_TO,
    HAVE,
    MAY_NOT,
    MODALS,
    PAST_TIMES,
    PRESENT_TIMES,
    SEIN,
    WANTED,
    WANTS,
    WAS,
    WERDEN,
    Draw,
    Group,
)
from paceline.tasks.nmt.standin.words import Verb


def draw_group(draw: Draw, verb: Verb, agreement: int, is_negated: bool) -> Group:
    return draw.pick(_TENSES)(draw, verb, agreement, is_negated)


def simple_group(verb: Verb, agreement: int, is_past: bool) -> Group:
    if is_past:
        finite, main, support = verb.past[agreement], verb.english_past, "did"
    else:
        finite, support = verb.present[agreement], DO_FORMS[agreement]
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
    finite = (SEIN if verb.takes_sein else HABEN)[agreement]
    participle = verb.participle
    last = f"{participle} {finite}"
    return Group(HAVE[agreement], verb.english_participle, "", "", finite, participle, last, "", ())


def _with_infinitive(verb: Verb, finite: str) -> tuple[str, str, str]:
    infinitive = verb.prefix + verb.infinitive
    return finite, infinitive, f"{infinitive} {finite}"


def _future(draw: Draw, verb: Verb, agreement: int, is_negated: bool) -> Group:
    german = _with_infinitive(verb, WERDEN[agreement])
    return Group("will", verb.english, "", "", *german, "", FUTURE_TIMES)


def _modal(draw: Draw, verb: Verb, agreement: int, is_negated: bool) -> Group:
    english, forms = draw.pick(MODALS)
    if english == "must" and is_negated:  # what one must not do, one may not do
        forms = MAY_NOT
    german = _with_infinitive(verb, forms[agreement])
    return Group(english, verb.english, "", "", *german, "", PRESENT_TIMES)


def _wants_or_had_to(draw: Draw, verb: Verb, agreement: int, is_negated: bool) -> Group:
    kind = draw.below(3)
    if kind == 0:
        finite = "wants" if agreement == 1 else "want"
        english = (f"{finite} to {verb.english}", DO_FORMS[agreement], f"want to {verb.english}")
        german = _with_infinitive(verb, WANTS[agreement])
        return Group("", *english, *german, "", PRESENT_TIMES)
    past, base, forms = ("wanted", "want", WANTED) if kind == 1 else ("had", "have", HAD_TO)
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
