"""Whom a backfill waits for before it computes or publishes anything."""

from __future__ import annotations

from datetime import timedelta
from typing import Annotated, Literal

from pydantic import Field

from airflow_backfill_provider.spec.checks import Frozen
from airflow_backfill_provider.spec.quantities import Duration

User = Annotated[str, Field(min_length=1, max_length=200)]
"""Of Airflow's auth manager: the id of a user, or the name, in any case."""


class OverPartitions(Frozen):
    """A plan needs an approval from a certain size on."""

    over_partitions: Annotated[int, Field(ge=1)]
    """The plan needs one when it has more partitions than this."""


class ApprovalSpec(Frozen):
    """Who must agree to the plan before anything is staged, and to the evidence before anything is published."""

    required: Literal["always", "never"] | OverPartitions = "never"
    """Whether the plan needs a person's approval before anything is staged: ``always``, ``never``, or
    ``{over_partitions: 31}``."""
    before_publish: bool = False
    """Whether a person looks at the evidence before anything is published, whatever ``required`` says."""
    approvers: tuple[User, ...] = ()
    """Users who may approve, by id or name, in any case; empty means whoever may answer for the DAG."""
    four_eyes: bool = True
    """Whether one who asked for the backfill, or for a revision of its plan, cannot approve it."""
    timeout: Duration = timedelta(days=2)
    """How long each question waits; one that nobody answered is a no."""
    waivers: tuple[User, ...] = ()
    """Users whose request may say ``waive_approval: <why>``; it stands in the audit trail. Nobody may when it is empty."""

    @property
    def asks(self) -> bool:
        """Whether there is a plan that a person is asked about."""
        return self.required != "never" or self.before_publish

    def needed_for(self, partitions: int) -> bool:
        """Whether a plan of so many partitions needs an approval before anything is staged."""
        if isinstance(self.required, OverPartitions):
            return partitions > self.required.over_partitions
        return self.required == "always"

    @property
    def rule(self) -> str:
        """``required`` in words."""
        if isinstance(self.required, OverPartitions):
            return f"over {self.required.over_partitions} partitions"
        return self.required
