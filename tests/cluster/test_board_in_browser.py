"""The page of a run in a browser, where one is sure to be installed."""

from pathlib import Path

import pytest

from tests.browser import find_browser
from tests.growing_run import GrowingRun
from tests.test_board import use_the_page

pytestmark = pytest.mark.cluster


def test_the_page_in_the_browser_that_the_packages_bring(tmp_path: Path) -> None:
    path = find_browser()
    assert path is not None, "install chromium: tools/cluster-packages does"
    growing = GrowingRun(tmp_path / "run")
    growing.hold_lock()
    growing.begin()
    growing.steps(3)
    growing.probe()
    use_the_page(path, growing)
    growing.close()
