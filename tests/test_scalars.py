"""TensorBoard's curves outlive storage that is away for a while."""

import time
from pathlib import Path

import pytest

from paceline.train.measure.scalars import Scalars


@pytest.mark.filterwarnings("ignore::pytest.PytestUnhandledThreadExceptionWarning")
def test_points_written_while_the_directory_was_away_are_there_once(tmp_path: Path) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    home, away = tmp_path / "run" / "tensorboard", tmp_path / "away"
    home.mkdir(parents=True)
    scalars = Scalars(home, purge_step=1)
    for step in range(1, 11):
        if step == 4:
            (tmp_path / "run").rename(away)
        scalars.add_scalar("loss", 1.0 / step, step)
        if step == 7:
            time.sleep(0.5)
            assert not home.exists(), "nothing may be written to where it was"
            away.rename(tmp_path / "run")
    scalars.close()
    board = EventAccumulator(str(home))
    board.Reload()
    assert [point.step for point in board.Scalars("loss")] == list(range(1, 11))
