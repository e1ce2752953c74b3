"""The parts of the report, in the page's order. What the ledger holds of one kind is one section.

A new kind is a module here with a function from :class:`Facts` to a :class:`Section` (or None when there is nothing of
the kind), a template of the section's name in ``templates/sections/``, and a line in :data:`SECTIONS`.
"""

from __future__ import annotations

from collections.abc import Callable

from airflow_backfill_provider.reporting.facts import Facts
from airflow_backfill_provider.reporting.sections.base import Section
from airflow_backfill_provider.reporting.sections.checks import checks
from airflow_backfill_provider.reporting.sections.control_period import control_period
from airflow_backfill_provider.reporting.sections.discarded import discarded
from airflow_backfill_provider.reporting.sections.expectation import expected
from airflow_backfill_provider.reporting.sections.inspected import inspected
from airflow_backfill_provider.reporting.sections.live_lag import live_lag
from airflow_backfill_provider.reporting.sections.meaning import meaning
from airflow_backfill_provider.reporting.sections.not_proven import not_proven
from airflow_backfill_provider.reporting.sections.old_and_new import old_and_new
from airflow_backfill_provider.reporting.sections.outcomes import outcomes
from airflow_backfill_provider.reporting.sections.range_evidence import range_evidence
from airflow_backfill_provider.reporting.sections.reconciliation import reconciliation
from airflow_backfill_provider.reporting.sections.rehearsed import rehearsed
from airflow_backfill_provider.reporting.sections.request import request
from airflow_backfill_provider.reporting.sections.samples import samples
from airflow_backfill_provider.reporting.sections.trail import trail
from airflow_backfill_provider.reporting.sections.way_back import way_back

SECTIONS: tuple[Callable[[Facts], Section | None], ...] = (
    old_and_new,
    outcomes,
    expected,
    checks,
    samples,
    discarded,
    range_evidence,
    reconciliation,
    control_period,
    rehearsed,
    inspected,
    live_lag,
    meaning,
    not_proven,
    way_back,
    request,
    trail,
)
