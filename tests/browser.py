"""A real browser without a window, where this machine has one."""

import os
import shutil
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

_NAMES = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable", "chrome")


def find_browser() -> str | None:
    """Named by PACELINE_BROWSER, installed by the system, or fetched by playwright."""
    named = os.environ.get("PACELINE_BROWSER")
    found = named or next((path for name in _NAMES if (path := shutil.which(name))), None)
    if found:
        return found
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        path = playwright.chromium.executable_path
    return path if os.access(path, os.X_OK) else None


@contextmanager
def open_browser(path: str) -> Iterator[Any]:
    from playwright.sync_api import sync_playwright

    with sync_playwright() as playwright:
        # As root, and in most containers, the browser's own sandbox cannot be set up.
        browser = playwright.chromium.launch(executable_path=path, args=["--no-sandbox"])
        try:
            yield browser
        finally:
            browser.close()
