"""The colour of each phase, the same in the report, on the board and in the terminal.

Hues that people with colour blindness tell apart (Okabe and Ito); what is not training is grey.
"""

from dataclasses import dataclass

from paceline.record import schema


@dataclass(frozen=True)
class PhaseColour:
    light: str
    """#rrggbb on a light background."""
    dark: str
    """#rrggbb on a dark background."""
    terminal: str
    """One of the 16 colours of every terminal, by the name that `rich` gives it."""
    letter: str
    """Stands for the phase where there is no colour."""


PHASE_COLOURS = {
    schema.START_UP: PhaseColour("#6b7a86", "#98a5b0", "bright_black", "s"),
    schema.INPUT: PhaseColour("#e69f00", "#f2b93b", "yellow", "i"),
    schema.COMPUTE: PhaseColour("#009e73", "#3cc79b", "green", "c"),
    schema.NETWORK: PhaseColour("#d55e00", "#f08a4b", "red", "n"),
    schema.OPTIMIZER: PhaseColour("#56b4e9", "#8ccdf3", "cyan", "o"),
    schema.EVALUATE: PhaseColour("#0072b2", "#4fa8e0", "blue", "e"),
    schema.CHECKPOINT: PhaseColour("#cc79a7", "#e39cc5", "magenta", "k"),
    schema.IDLE: PhaseColour("#bfc7b8", "#5b6456", "bright_white", "."),
    schema.RESTART: PhaseColour("#8a4b2a", "#c08a6a", "bright_red", "r"),
    schema.SHUT_DOWN: PhaseColour("#a8b0b6", "#6d767d", "bright_black", "d"),
    schema.UNEXPLAINED: PhaseColour("#d0d5da", "#4a525a", "white", "?"),
}


def light_variables() -> str:
    """CSS variables, `--compute:#009e73;...`, for a light page and for paper."""
    return "".join(f"--{name}:{colour.light};" for name, colour in PHASE_COLOURS.items())


def dark_variables() -> str:
    return "".join(f"--{name}:{colour.dark};" for name, colour in PHASE_COLOURS.items())


def phase_style_sheet() -> str:
    """The variables of both kinds of page, for a style sheet that uses `var(--compute)`."""
    return (
        f":root{{{light_variables()}}}\n"
        f"@media (prefers-color-scheme:dark){{:root{{{dark_variables()}}}}}\n"
        f"@media print{{:root{{{light_variables()}}}}}\n"
    )
