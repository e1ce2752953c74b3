"""One partition's SQL from the scheduled pipeline's own template, in a sandbox."""

from __future__ import annotations

import copy
from datetime import date
from functools import lru_cache
from types import TracebackType
from typing import Any

import pendulum
from jinja2 import StrictUndefined, Template, TemplateError, TemplateSyntaxError, meta, nodes
from jinja2.sandbox import SandboxedEnvironment

from airflow_backfill_provider.errors import TransformRefused
from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.spec.transforms import SqlTransform, TransformSpec
from airflow_backfill_provider.transform.macros import FILTERS, MACROS
from airflow_backfill_provider.windows import Partition, Value

_LOGICAL_DATE_NAMES = ("logical_date", *FILTERS)
_TIME_NAMES = ("data_interval_start", "data_interval_end")
_CLOCK = frozenset({"now", "utcnow", "today", "tomorrow", "yesterday", "age", "is_past", "is_future"})


class _Sandbox(SandboxedEnvironment):
    """Jinja's sandbox, which also keeps the clock out: a re-run must render the same SQL."""

    def is_safe_attribute(self, obj: Any, attr: str, value: Any) -> bool:
        dated = isinstance(obj, date) or (isinstance(obj, type) and issubclass(obj, date))
        return not (dated and attr in _CLOCK) and super().is_safe_attribute(obj, attr, value)


def render(transform: SqlTransform, partition: Partition) -> str:
    """The transform's SQL for one partition, as Airflow renders it for that data interval.

    ``data_interval_start`` and ``data_interval_end`` are the partition's bounds in UTC, or ``partition_value`` the value of
    a list partition; ``partition_key`` (but for ``scope: range``), ``params`` and ``macros`` are there; ``ds``, ``ts`` and ``logical_date`` only when
    ``transform.logical_date`` says what they mean.

    :raises TransformRefused: a name or value the template asks for does not exist here, or is not the same on every
        run; with the line in the file.
    """
    origin = transform.file or "The SQL"
    names = names_of(transform, partition)
    try:
        template, asked_for = _compiled(transform.sql)
        _refuse_unknown({name: line for name, line in asked_for.items() if name not in names}, names, origin)
        return template.render(names)
    except TemplateSyntaxError as error:
        raise TransformRefused(
            f"{origin}, line {error.lineno}: not a Jinja template: {str(error.message).rstrip('.')}."
        ) from error
    except TransformRefused:
        raise
    # The template calls methods of values, and a method may raise anything.
    except Exception as error:
        line = _template_line(error.__traceback__)
        place = f"{origin}, line {line}" if line else origin
        reason = str(error).rstrip(".") if isinstance(error, TemplateError) else f"{type(error).__name__}: {error}"
        raise TransformRefused(
            f"{place}: cannot be rendered for partition {partition.key}: {reason}. Templates may use "
            f"{', '.join(sorted(names))}, give the same SQL on every run, and include no other file."
        ) from error


def sql_of(spec: BackfillSpec, partition: Partition) -> SqlTransform:
    """The one SQL text that recomputes the partition: that of its era.

    :raises TransformRefused: the transform is no SQL.
    """
    sql = spec.transform.sql_in(spec.era_of(partition))
    if sql is None:
        raise TransformRefused(f"{spec.transform.origin} is code, which has no SQL.")
    return sql


def names_of(transform: TransformSpec, partition: Partition) -> dict[str, Any]:
    """What the transform is told of the partition, by name; see :func:`render`."""
    names: dict[str, Any] = {
        "params": copy.deepcopy(transform.params),  # a template may change its own copy
        "macros": MACROS,
    }
    if transform.scope == "partition":  # a run of partitions has no key in common
        names["partition_key"] = partition.key
    if isinstance(partition.span, Value):
        return names | {"partition_value": partition.span.text}
    start, end = pendulum.instance(partition.span.start), pendulum.instance(partition.span.end)
    names |= {"data_interval_start": start, "data_interval_end": end}
    if transform.logical_date is not None:
        moment = start if transform.logical_date == "start" else end
        names |= {"logical_date": moment} | {name: write(moment) for name, write in FILTERS.items()}
    return names


def _refuse_unknown(unknown: dict[str, int], names: dict[str, Any], origin: str) -> None:
    """Also in a branch that is not taken and behind ``is defined``: there Airflow would give another answer."""
    if not unknown:
        return
    listed = ", ".join(f"{name!r} (line {line})" for name, line in unknown.items())
    if "partition_value" in names and set(unknown) <= {*_TIME_NAMES, *_LOGICAL_DATE_NAMES}:
        raise TransformRefused(
            f"{origin} uses {listed}, but a partition of this target is a value of a list and has no time. Bound the SQL "
            "by partition_value: WHERE region = '{{ partition_value }}'."
        )
    if set(unknown) <= set(_LOGICAL_DATE_NAMES):
        raise TransformRefused(
            f"{origin} uses {listed}, which depends on the timetable: under Airflow 3's default cron timetable ds is "
            "the day after the interval's start. Set transform.logical_date to start or end in the spec to say which "
            "bound of the partition it means, or use data_interval_start and data_interval_end in the file."
        )
    raise TransformRefused(
        f"{origin} uses {listed}, which a backfill does not have. Templates may use {', '.join(sorted(names))}; "
        "hand other values in through transform.params."
    )


def utc_dates(transform: SqlTransform) -> int | None:
    """The first line of the template that writes a bound by a date filter, which gives the date in UTC."""
    for node in _environment().parse(transform.sql).find_all(nodes.Filter):
        if node.name in FILTERS and isinstance(node.node, nodes.Name) and node.node.name in _TIME_NAMES:
            return node.lineno
    return None


@lru_cache(maxsize=32)
def _compiled(sql: str) -> tuple[Template, dict[str, int]]:
    """The template, and each name it asks for with the first line that does."""
    environment = _environment()
    tree = environment.parse(sql)
    undeclared = meta.find_undeclared_variables(tree)
    lines: dict[str, int] = {}
    for node in tree.find_all(nodes.Name):
        if node.ctx == "load" and node.name in undeclared:
            lines.setdefault(node.name, node.lineno)
    return environment.from_string(sql), lines


def _environment() -> _Sandbox:
    environment = _Sandbox(undefined=StrictUndefined, extensions=["jinja2.ext.do"], cache_size=0)
    environment.filters |= FILTERS
    del environment.filters["random"], environment.globals["lipsum"]
    return environment


def _template_line(traceback: TracebackType | None) -> int | None:
    line = None
    while traceback is not None:
        if traceback.tb_frame.f_code.co_filename == "<template>":
            line = traceback.tb_lineno
        traceback = traceback.tb_next
    return line
