"""A few lives under strikes, and everybody at once for a moment; ``make chaos`` does both for as long as one likes."""

from __future__ import annotations

from pathlib import Path

import pytest
from contract_faults import RIGS, Rig
from lives import LIVES, PUBLISHED, UNDONE
from neighbours import GROUNDS, beside
from schedules import schedule, survive

pytestmark = pytest.mark.timeout(900)
STEPS = {rig.name: (PUBLISHED, UNDONE)[number % 2] for number, rig in enumerate(RIGS)}
SEEDS = {
    name: [
        LIVES.index(next(life for life in LIVES if (life.rig.name, life.steps) == (name, steps))) + len(LIVES) * turn
        for turn in (2, 3)
    ]
    for name, steps in STEPS.items()
}
"""By engine, lives that are struck from their third or fourth step on, which is where something is written that others see."""


@pytest.mark.parametrize("engine", SEEDS)
def test_what_was_struck_is_old_or_new_and_ends_as_if_nothing_had_been(engine: str, tmp_path: Path) -> None:
    for seed in SEEDS[engine]:
        planned = schedule(seed)
        assert planned.life.rig.name == engine
        try:
            assert survive(planned, tmp_path)
        except AssertionError as error:
            raise AssertionError(f"{planned}; make chaos SEED={seed}") from error


@pytest.mark.parametrize("rig", GROUNDS, ids=lambda rig: rig.name)
def test_everybody_at_once_reads_no_mixture_loses_no_append_and_keeps_to_the_cap(
    rig: type[Rig], tmp_path: Path
) -> None:
    together = beside(rig, tmp_path, seconds=3)
    assert together.published >= 2
    assert min(together.scheduled, together.appended, together.reads) >= 1
