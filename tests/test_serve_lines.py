"""Whatever lines come in, as many go out, in order."""

import io
from collections.abc import Sequence

import pytest

from paceline.errors import UserError
from paceline.tasks.nmt.serve.lines import (
    Candidate,
    Search,
    Streams,
    Wish,
    answer,
    cut,
    read_blocks,
)


class Shouter:
    """Words are pieces, and the translation of a text is its capitals: no model needed."""

    longest_seen = 8

    def __init__(self) -> None:
        self.asked: list[str] = []

    def count_pieces(self, texts: Sequence[str]) -> list[int]:
        return [max(len(text.split()), len(text) // 20) for text in texts]

    def translate(self, texts: Sequence[str], search: Search) -> list[list[Candidate]]:
        self.asked += texts
        ranks = range(search.num_best or 1)
        return [
            [Candidate(f"{text.upper()}{'?' * rank}", -1.0 - rank) for rank in ranks]
            for text in texts
        ]


def run(given: bytes, search: Search | None = None) -> tuple[list[str], list[str], Shouter]:
    said: list[str] = []
    shouter, written = Shouter(), io.BytesIO()
    answer(shouter, search or Search(), Streams(io.BytesIO(given), written), said.append)
    text = written.getvalue().decode()
    assert text == "" or text.endswith("\n")
    return text.split("\n")[:-1], said, shouter


def test_lines_come_back_in_order() -> None:
    lines = [f"line {number}" for number in range(5000)]
    assert run("\n".join(lines).encode())[0] == [line.upper() for line in lines]


def test_an_empty_line_stays_empty_and_is_not_translated() -> None:
    out, said, shouter = run(b"a\n\n \t \nb\n")
    assert out == ["A", "", "", "B"]
    assert shouter.asked == ["a", "b"]
    assert said == []


def test_nothing_in_gives_nothing_out() -> None:
    assert run(b"")[0] == []


def test_a_last_line_without_an_end_and_windows_line_ends_are_lines_too() -> None:
    assert run(b"a\r\nb")[0] == ["A", "B"]


def test_a_byte_order_mark_is_no_text() -> None:
    assert run(b"\xef\xbb\xbfa\n")[0] == ["A"]


def test_bytes_that_are_not_utf8_are_replaced_translated_and_reported_by_line() -> None:
    out, said, _ = run(b"fine\ncaf\xe9 au lait\nfine\n")
    assert out == ["FINE", "CAF\ufffd AU LAIT", "FINE"]
    assert len(said) == 1
    assert "line 2" in said[0]
    assert "UTF-8" in said[0]


def test_control_characters_neither_break_lines_nor_go_unsaid() -> None:
    out, said, _ = run("a\x00b\x07c\x0b\x85d\u2028e\nf\n".encode())
    assert out == ["A B C  D E", "F"]
    assert "line 1" in said[0]


def test_many_odd_lines_are_summed_up_rather_than_listed() -> None:
    _, said, _ = run(b"\xff a\n" * 500)
    assert len(said) < 10
    assert "500" in said[-1]


def test_a_long_line_is_translated_sentence_by_sentence_and_it_is_said() -> None:
    line = "Mr. Smith went home very late today. Why did he? Nobody knows it."
    out, said, shouter = run(f"short\n{line}\nshort\n".encode())
    assert out == ["SHORT", line.upper(), "SHORT"]
    assert shouter.asked[1:-1] == [
        "Mr. Smith went home very late today.",
        "Why did he?",
        "Nobody knows it.",
    ]
    assert "line 2" in said[0]
    assert "3 parts" in said[0]


def test_a_sentence_without_end_is_cut_at_blanks_and_loses_no_word() -> None:
    words = [f"word{number}" for number in range(1000)]
    parts = cut(" ".join(words), Shouter())
    assert " ".join(parts).split() == words
    assert all(len(part.split()) <= Shouter.longest_seen for part in parts)


def test_a_line_without_blanks_is_cut_all_the_same() -> None:
    parts = cut("x" * 100_000, Shouter())
    assert "".join(parts) == "x" * 100_000
    assert all(count <= Shouter.longest_seen for count in Shouter().count_pieces(parts))


def test_n_best_lists_name_line_score_and_translation() -> None:
    out, _, _ = run(b"a\n\nb\n", Search(num_best=2))
    assert out == [
        "1\t-1.0000\tA",
        "1\t-2.0000\tA?",
        "2\t0.0000\t",
        "3\t-1.0000\tB",
        "3\t-2.0000\tB?",
    ]


def test_the_n_best_of_a_line_in_parts_join_those_of_the_parts() -> None:
    out, _, _ = run(b"One two three four five six. Seven eight nine ten.\n", Search(num_best=2))
    assert out == [
        "1\t-2.0000\tONE TWO THREE FOUR FIVE SIX. SEVEN EIGHT NINE TEN.",
        "1\t-4.0000\tONE TWO THREE FOUR FIVE SIX.? SEVEN EIGHT NINE TEN.?",
    ]


def test_blocks_are_bounded_by_lines_and_by_bytes() -> None:
    given = b"0123456789\n" * 100
    by_lines = list(read_blocks(io.BytesIO(given), num_lines=30, num_bytes=10**6))
    assert [len(block) for block in by_lines] == [30, 30, 30, 10]
    by_bytes = list(read_blocks(io.BytesIO(given), num_lines=1000, num_bytes=110))
    assert [len(block) for block in by_bytes] == [10] * 10


def test_what_is_not_wished_stays_as_the_recipe_has_it() -> None:
    usual = Search(beam=4, length_penalty=0.6)
    assert Wish().laid_over(usual) == usual
    assert Wish(is_greedy=True).laid_over(usual).beam == 1
    assert Wish(beam=7).laid_over(usual).beam == 7
    assert Wish(num_best=6).laid_over(usual).beam == 6


@pytest.mark.parametrize(
    "wish",
    [Wish(beam=4, is_greedy=True), Wish(beam=2, num_best=3), Wish(is_greedy=True, num_best=2)],
)
def test_wishes_that_contradict_each_other_are_refused(wish: Wish) -> None:
    with pytest.raises(UserError):
        wish.laid_over(Search())
