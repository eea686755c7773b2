"""What becomes of a trained model: translating with it, and taking it to a small device.

Here is only what must be known before anything heavy is imported.
"""

from importlib.util import find_spec
from pathlib import Path
from typing import Final

from paceline.errors import UserError

EXPORT_CARD: Final = "paceline.json"
_LIBRARIES: Final = ("ctranslate2", "sentencepiece")


def is_export(directory: Path) -> bool:
    return (directory / EXPORT_CARD).is_file()


def require_libraries() -> None:
    """Exported models need these, which a plain installation does not bring."""
    missing = [name for name in _LIBRARIES if find_spec(name) is None]
    if missing:
        raise UserError(
            f"exported models need {' and '.join(missing)}", f"pip install {' '.join(missing)}"
        )
