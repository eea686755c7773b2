"""What strangers wrote may be printed, but may not drive the terminal."""

import json

from paceline.terminal import printable


def test_an_escape_is_spelled_out_and_drives_nothing() -> None:
    assert printable("\x1b[2Jgone\x07") == "\\u001b[2Jgone\\u0007"


def test_eight_bit_control_characters_are_spelled_out_too() -> None:
    assert printable("\x9b31mred\x7f") == "\\u009b31mred\\u007f"


def test_a_carriage_return_cannot_overwrite_the_line() -> None:
    assert printable("bad\rgood") == "bad\\u000dgood"


def test_characters_that_turn_the_direction_are_spelled_out() -> None:
    assert printable("a\u202eb\u2066c") == "a\\u202eb\\u2066c"


def test_a_file_name_that_is_not_utf8_can_be_printed() -> None:
    name = b"run-\xff".decode("utf-8", "surrogateescape")
    assert printable(name).encode("utf-8") == b"run-\\udcff"


def test_newlines_tabs_and_every_script_stay_as_they_are() -> None:
    text = "loss\t1.5\nZürich 東京 ▁▂▃ 🚲"
    assert printable(text) == text


def test_json_stays_json_with_the_same_content() -> None:
    content = {"text": "a\x1bb\x9bc\u202e"}
    assert json.loads(printable(json.dumps(content, ensure_ascii=False))) == content
