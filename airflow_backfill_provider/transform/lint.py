"""What to be wary of in a transform: results that a second run may not repeat, and bounds that are missing.

Findings are warnings. That staged rows lie inside their partition is enforced where they are written.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

import pendulum
from sqlglot import exp

from airflow_backfill_provider.real_tables import real_tables
from airflow_backfill_provider.spec.model import BackfillSpec, TargetSpec
from airflow_backfill_provider.transform.history import ColumnsOf, read_as_of_today
from airflow_backfill_provider.transform.parse import Query, function_name, parse, same_table
from airflow_backfill_provider.transform.render import render, sql_of, utc_dates
from airflow_backfill_provider.windows import Grain, Partition, Value, partition_at

_CLOCK = frozenset(
    "now today current_date current_time current_timestamp current_datetime get_current_timestamp get_current_time "
    "localtime localtimestamp transaction_timestamp statement_timestamp clock_timestamp timeofday sysdate systimestamp "
    "getdate utc_date utc_time utc_timestamp current_timestamp_ltz current_localtimestamp current_localtime".split()
)
_CLOCK_WORDS = frozenset({"now", "today", "tomorrow", "yesterday"})
_RANDOM = frozenset(
    "random rand randn uuid uuidv4 uuidv7 gen_random_uuid uuid_generate_v4 generate_uuid shuffle "
    "monotonically_increasing_id txid_current pg_current_xact_id".split()
)
_ORDERED_WINDOW = frozenset(
    "row_number rank dense_rank percent_rank cume_dist ntile lag lead first_value last_value nth_value first "
    "last".split()
)
_ORDERED_AGGREGATE = frozenset(
    "any_value arbitrary first last list array_agg string_agg group_concat listagg collect_list".split()
)


ORDER_DEPENDENT = frozenset(
    {"unordered_window", "unordered_limit", "unordered_distinct", "unordered_aggregate", "window_ties"}
)
"""The codes of findings by which the result may depend on the order in which rows are stored or read."""
_UNREPEATABLE = ORDER_DEPENDENT | {"clock", "random"}


@dataclass(frozen=True)
class Finding:
    """One thing to be wary of; ``line`` counts in the rendered SQL, ``None`` when it is not known."""

    code: str
    message: str
    line: int | None = None

    def __str__(self) -> str:
        return f"{f'line {self.line}: ' if self.line else ''}{self.message} [{self.code}]"


def _unknown(table: str) -> tuple[str, ...]:
    return ()


def lint(
    spec: BackfillSpec, partition: Partition, dialect: str, columns_of: ColumnsOf = _unknown
) -> tuple[Finding, ...]:
    """Everything to be wary of in the transform as rendered for ``partition``, in the order of its lines.

    ``columns_of`` lets it find the tables that keep their own history; without it, only those the spec names are known.

    :raises TransformRefused: as :func:`airflow_backfill_provider.transform.prepare`.
    """
    transform = sql_of(spec, partition)
    query, elsewhere = (
        parse(render(transform, one), spec.target.table, dialect, transform.file or "The SQL")
        for one in (partition, _another(spec, partition))  # by one file, whatever the era of the other partition
    )
    findings = [
        *_nodes(query.tree, dialect, spec.transform.bounded_reads),
        *_bounds(spec, partition, query, elsewhere, dialect),
    ]
    for table in real_tables(query.tree):
        if same_table(table, spec.target.table, dialect):
            findings.append(
                Finding(
                    "reads_target",
                    f"reads {spec.target.table}, the table it rebuilds: a partition's result then depends on what is "
                    "published, and on the order in which partitions are published",
                    _line(table),
                )
            )
    declared = spec.source.history if spec.source is not None else ()
    for table, valid_from in read_as_of_today(query.tree, declared, dialect, columns_of):
        findings.append(
            Finding(
                "as_of_today",
                f"reads {table.sql(dialect)}, which keeps its own history, and compares {valid_from} with no time of the "
                "row: this rewrites history as of today. Join the version that was valid then, such as "
                f"{valid_from} <= the row's time",
                _line(table),
            )
        )
    if spec.target.timezone != "UTC" and (line := utc_dates(transform)) is not None:
        findings.append(
            Finding(
                "utc_date",
                f"writes a bound of the partition as a date in UTC, while its days are those of {spec.target.timezone}; "
                f"write data_interval_start.in_timezone('{spec.target.timezone}') | ds",
                line,
            )
        )
    if query.by_position:
        findings.append(
            Finding(
                "positional_insert",
                "the INSERT names no columns, so the scheduled run matches them by position; a backfill matches them "
                "by name. Name the columns, or check that names and positions agree",
                _line(query.tree),
            )
        )
    return tuple(sorted(dict.fromkeys(findings), key=lambda finding: (finding.line or 0, finding.code)))


def unrepeatable(spec: BackfillSpec, partition: Partition, dialect: str) -> tuple[Finding, ...]:
    """What in the transform may give other rows when it runs again over the same ones.

    Last come the window functions that take rows in an order: ties in it may be broken in another way each time.

    :raises TransformRefused: as :func:`lint`.
    """
    transform = sql_of(spec, partition)
    tree = parse(render(transform, partition), spec.target.table, dialect, transform.file or "The SQL").tree
    known = [finding for finding in _nodes(tree, dialect) if finding.code in _UNREPEATABLE]
    ties = [
        _finding(node, "window_ties", "is repeatable only when no two rows tie in its ORDER BY", dialect)
        for node in tree.find_all(exp.Window)
        if _window_function(node) in _ORDERED_WINDOW and node.args.get("order")
    ]
    return tuple(dict.fromkeys([*known, *ties]))


def _nodes(tree: exp.Expr, dialect: str, bounded: Sequence[str] = ()) -> Iterator[Finding]:
    own = {cte.alias for cte in tree.find_all(exp.CTE)}
    for node in tree.walk():
        match node:
            case exp.Window():
                if _window_function(node) in _ORDERED_WINDOW and not node.args.get("order"):
                    yield _finding(node, "unordered_window", "numbers or picks rows without ORDER BY", dialect)
            case exp.TableSample():
                yield _finding(node, "random", "takes a sample, which differs from run to run", dialect)
            case exp.Cast() if _is_clock_word(node.this):
                yield _finding(node, "clock", "depends on when it runs", dialect)
            case exp.Func():
                yield from _function(node, dialect)
            case exp.Limit() | exp.Fetch():
                if node.parent and not node.parent.args.get("order"):
                    yield _finding(node, "unordered_limit", "keeps some rows without an ORDER BY to say which", dialect)
            case exp.Distinct() if node.args.get("on") and node.parent and not node.parent.args.get("order"):
                yield _finding(node, "unordered_distinct", "keeps one row of several without ORDER BY", dialect)
            case exp.Select() if not isinstance(node.parent, exp.Exists):
                yield from _star(node, own, dialect, bounded)


def _function(node: exp.Func, dialect: str) -> Iterator[Finding]:
    name = function_name(node)
    arguments = [value for value in node.args.values() if isinstance(value, exp.Expr)]
    if name in _CLOCK or (name == "age" and len(node.expressions or arguments) == 1):
        yield _finding(node, "clock", "depends on when it runs", dialect)
    elif name in _RANDOM:
        yield _finding(node, "random", "gives another value on every run", dialect)
    elif name in _ORDERED_AGGREGATE and not node.find(exp.Order) and not _inside_window(node):
        yield _finding(node, "unordered_aggregate", "depends on the order of rows, which is not given", dialect)


def _star(node: exp.Select, own: set[str], dialect: str, bounded: Sequence[str]) -> Iterator[Finding]:
    if _is_bounding(node.parent, dialect, bounded):
        return
    from_ = node.args.get("from_")
    joins = node.args.get("joins") or []
    sources = [source.this for source in [from_, *joins] if source]
    # A * over names that this very query defines lists nothing that its text does not list.
    if all(
        (isinstance(one, exp.Subquery) and not _is_bounding(one, dialect, bounded))
        or (isinstance(one, exp.Table) and one.name in own)
        for one in sources
    ):
        return
    for column in node.expressions:
        if column.is_star:
            yield _finding(column, "select_star", "takes whatever columns the table has on the day it runs", dialect)


def _is_bounding(node: exp.Expr | None, dialect: str, bounded: Sequence[str]) -> bool:
    """Whether a subquery stands for a table of which it only leaves rows out."""
    inner = node.this if isinstance(node, exp.Subquery) else None
    source = inner.args.get("from_") if isinstance(inner, exp.Select) else None
    return source is not None and source.this.sql(dialect=dialect) in bounded


def _bounds(
    spec: BackfillSpec, partition: Partition, query: Query, elsewhere: Query, dialect: str
) -> Iterator[Finding]:
    """Whether a filter depends on the partition: literals that another partition's SQL does not hold."""
    other = {literal.this for _, literal in _compared(elsewhere.tree)}
    bounds = [(predicate, literal) for predicate, literal in _compared(query.tree) if literal.this not in other]
    if not bounds:
        yield Finding(
            "no_partition_bound",
            "no filter depends on the partition, so every partition reads everything and gives the same rows; filter "
            f"with {partition.span.template_names}",
        )
        return
    predicates = [predicate for predicate, _ in bounds]
    if all(isinstance(one, exp.GT | exp.GTE | exp.LT | exp.LTE) for one in predicates):
        sides = {_opens_upwards(predicate, literal) for predicate, literal in bounds}
        if len(sides) == 1:
            missing = "an upper" if sides.pop() else "a lower"
            yield _finding(
                predicates[0], "half_bounded", f"bounds the partition on one side; add {missing} bound", dialect
            )
    if isinstance(partition.span, Value):
        return
    ends = _written(partition.span.end, spec.target)
    for predicate, literal in bounds:
        inclusive = (isinstance(predicate, exp.Between) and literal.find_ancestor(exp.Between) is predicate) or (
            isinstance(predicate, exp.LTE | exp.GTE) and not _opens_upwards(predicate, literal)
        )
        if inclusive and literal.this.startswith(ends) and not _is_low(predicate, literal):
            message = "includes data_interval_end, which belongs to the next partition; use <"
            yield _finding(predicate, "inclusive_end", message, dialect)


def _another(spec: BackfillSpec, partition: Partition) -> Partition:
    """A partition that shares no literal with this one."""
    if isinstance(partition.span, Value):
        text = partition.span.text
        other = str(int(text) + 1) if text.isdecimal() else f"{text}_"
        return Partition(other, Value(other))
    away = timedelta(days=400 if partition.span.end.year < 5000 else -400)
    return partition_at(partition.span.start + away, spec.target.grain, spec.target.timezone)


def _written(end: datetime, target: TargetSpec) -> tuple[str, ...]:
    """How texts begin that name this end, as the zone's clock shows it."""
    shown = pendulum.instance(end).in_timezone(target.timezone)
    patterns = ("%Y-%m-%d %H", "%Y-%m-%dT%H") if target.grain is Grain.HOUR else ("%Y-%m-%d",)
    return tuple(shown.strftime(pattern) for pattern in patterns)


def _compared(tree: exp.Expr) -> Iterator[tuple[exp.Expr, exp.Literal]]:
    """Each literal inside a comparison of a WHERE, ON, HAVING, QUALIFY or FILTER, with that comparison."""
    for literal in tree.find_all(exp.Literal):
        predicate = literal.find_ancestor(exp.Predicate)
        if predicate is not None and literal.find_ancestor(exp.Where, exp.Join, exp.Having, exp.Qualify, exp.Filter):
            yield predicate, literal


def _opens_upwards(predicate: exp.Expr, literal: exp.Literal) -> bool:
    """``column >= literal`` or ``literal <= column``."""
    on_the_right = any(node is literal for node in predicate.args["expression"].walk())
    return isinstance(predicate, exp.GT | exp.GTE) == on_the_right


def _is_low(predicate: exp.Expr, literal: exp.Literal) -> bool:
    low = predicate.args.get("low")
    return low is not None and any(node is literal for node in low.walk())


def _window_function(node: exp.Window) -> str:
    """The function a window is over, without IGNORE NULLS and the like around it."""
    function = node.find(exp.Func)
    return function_name(function) if function is not None else ""


def _inside_window(node: exp.Func) -> bool:
    window = node.find_ancestor(exp.Window)
    return window is not None and any(inner is node for inner in window.this.walk())


def _is_clock_word(node: exp.Expr) -> bool:
    return isinstance(node, exp.Literal) and node.is_string and node.this.strip().lower() in _CLOCK_WORDS


def _finding(node: exp.Expr, code: str, what: str, dialect: str) -> Finding:
    text = node.sql(dialect=dialect)
    shown = text if len(text) <= 80 else text[:77] + "…"
    return Finding(code, f"{shown} {what}", _line(node))


def _line(node: exp.Expr) -> int | None:
    """The first line that the parser noted for the node or something inside it."""
    for inner in node.walk():
        if (line := inner.meta.get("line")) is not None:
            return int(line)
    return None
