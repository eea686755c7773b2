"""A phase has one colour, wherever it is drawn."""

from paceline.record.palette import PHASE_COLOURS, phase_style_sheet
from paceline.record.schema import PHASES


def test_every_phase_has_a_colour_and_a_letter_of_its_own() -> None:
    assert list(PHASE_COLOURS) == list(PHASES)
    colours = PHASE_COLOURS.values()
    for told in ("light", "dark", "letter"):
        assert len({getattr(colour, told) for colour in colours}) == len(PHASES)


def test_the_style_sheet_names_every_phase_for_light_dark_and_paper() -> None:
    light, dark, paper = phase_style_sheet().splitlines()
    for name, colour in PHASE_COLOURS.items():
        assert f"--{name}:{colour.light};" in light
        assert f"--{name}:{colour.dark};" in dark
        assert f"--{name}:{colour.light};" in paper
    assert "prefers-color-scheme:dark" in dark
    assert "print" in paper
