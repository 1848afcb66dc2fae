"""Whatever happens to sessions, in whatever order: the short form of `integration.soak.state_machine`."""

from __future__ import annotations

import pytest

from integration.soak import state_machine
from integration.soak.state_machine import Disk, Memory, Place, Rows, SealedDisk, play
from tests.tries import tries


@pytest.mark.requirement("STORE-ANY-ORDER")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of forks beside threads
@pytest.mark.parametrize("place", [Disk, SealedDisk, Memory])
def test_nothing_is_lost_in_any_order(place: type[Place]) -> None:
    tally = play(place, tries(60).max_examples)

    assert tally.acknowledged


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_nothing_is_lost_in_any_order_in_postgresql(postgres_server: str) -> None:
    assert play(lambda: Rows(postgres_server), tries(20).max_examples).acknowledged


@pytest.mark.parametrize(
    "mutation", ["undelete_over_live", "waiting_without_end", "locks_of_the_parent", "one_save_at_a_time"]
)
def test_the_machine_takes_out_what_is_there(mutation: str) -> None:
    """A protection that was renamed cannot be taken out; only the long form shows that taking it out is noticed."""
    assert any(mutation in repr(case.run) for case in state_machine.PROGRAM.cases)
