"""``airflow safe-backfill …``: the commands, declared without importing what they need to run."""

from __future__ import annotations

import os
from importlib import import_module
from typing import Any

from airflow.cli.cli_config import ActionCommand, Arg, GroupCommand


def _argument(*flags: str, **settings: Any) -> Arg:
    return Arg(flags, **settings)  # type: ignore[no-untyped-call]


_SPEC = _argument("spec", help="path of the spec's YAML file")
_BACKFILL_ID = _argument("backfill_id", help="12 characters, from the report or `airflow safe-backfill list`")
_SWITCHED = (
    _argument("name", help="name of the spec", nargs="?"),
    _argument("--all", help="every backfill of this Airflow", action="store_true", dest="everything"),
)
_CONN_ID = _argument(
    "--conn-id",
    help="connection of a warehouse; may be repeated. Default: each that a backfill was ever opened with",
    action="append",
    default=[],
)
_DEMO = (
    "Writes into one folder, ./.demo, and listens on 127.0.0.1 only. `run` starts over each time and stops its Airflow at the "
    "end; to remove everything, `demo down` and delete the folder."
)


def _lazy(module: str, function: str) -> Any:
    """A command's function, imported when it is called: every `airflow` command builds this parser."""

    def call(args: Any) -> None:
        # Without it a command finds no connection of the metadata database; `airflow connections get` does the same.
        os.environ["_AIRFLOW_PROCESS_CONTEXT"] = "server"
        import_module(f"airflow_backfill_provider.cli.{module}").__dict__[function](args)

    return call


def get_cli_commands() -> list[GroupCommand]:
    """The group that Airflow's command line takes up."""
    return [
        GroupCommand(
            name="safe-backfill",
            help="Rebuild published history without ever exposing a half-written result",
            subcommands=(
                ActionCommand(
                    name="init",
                    help="Create the pool, the kill switch and the ledger where they are missing; safe to run again",
                    func=_lazy("setup", "init"),
                    args=(
                        _argument("--slots", help="slots of a new pool", type=int, default=4),
                        _argument("--ledger", help="path of a new SQLite ledger; default: in AIRFLOW_HOME"),
                    ),
                ),
                ActionCommand(
                    name="plan",
                    help="Print the plan a trigger would make; reads only",
                    func=_lazy("specs", "plan"),
                    args=(
                        _SPEC,
                        _argument("--from-date", help="first day, such as 2013-02-01, or --from-date=-30d"),
                        _argument("--to-date", help="last day, inclusive when a date; without it: all that is over"),
                        _argument(
                            "--partition", help="one partition key; may be repeated", action="append", default=[]
                        ),
                        _argument("--exclude", help="a key to leave out; may be repeated", action="append", default=[]),
                        _argument("--reason", help="why", default=""),
                        _argument(
                            "--expand", help="widen a range that cuts a partition to whole ones", action="store_true"
                        ),
                        _argument("--include-live", help="take in the partition being written", action="store_true"),
                    ),
                ),
                ActionCommand(
                    name="drill",
                    help="Rehearse a backfill: damage one staged partition on purpose, publish nothing, clean up",
                    description="Ends with status 1 unless the damage was stopped by a message that names the partition.",
                    func=_lazy("specs", "drill"),
                    args=(
                        _argument(
                            "name",
                            help="path of the spec's YAML file, or the name of a spec that was backfilled before",
                        ),
                        _argument(
                            "--from-date", help="first day; without a range: the last three partitions that are over"
                        ),
                        _argument("--to-date", help="last day, inclusive when a date"),
                        _argument(
                            "--partition", help="one partition key; may be repeated", action="append", default=[]
                        ),
                        _argument("--reason", help="why", default="drill"),
                    ),
                ),
                ActionCommand(
                    name="validate-spec",
                    help="Read a spec and say what is wrong with it, without any connection",
                    func=_lazy("specs", "validate_spec"),
                    args=(_SPEC,),
                ),
                ActionCommand(
                    name="new",
                    help="Write a first spec for a table, and the DAG file that serves it",
                    func=_lazy("specs", "new"),
                    args=(
                        _argument("--table", help="published table, schema.table", required=True),
                        _argument("--sql", help="the scheduled pipeline's SQL file", required=True),
                        _argument("--partition-by", help="its date column", required=True),
                        _argument("--key", help="comma-separated columns that identify a row", required=True),
                        _argument("--conn-id", help="connection of the warehouse", default="warehouse_backfill"),
                        _argument("--folder", help="where specs live", default="backfills"),
                    ),
                ),
                ActionCommand(
                    name="demo",
                    help="Correct five months of real flights in an Airflow of its own; needs the extra `demo`",
                    description=_DEMO,
                    func=_lazy("demo", "demo"),
                    args=(
                        _argument(
                            "action",
                            help="run (when left out): load, publish wrongly, correct, verify. rollback: undo that. "
                            "up, down: start and stop its Airflow with the web UI",
                            nargs="?",
                            choices=("run", "rollback", "up", "down"),
                            default="run",
                        ),
                        _argument(
                            "--engine",
                            help="the engine that holds the tables; default: that of the folder, else duckdb",
                            choices=("databricks-local", "delta", "duckdb", "postgres"),
                        ),
                        _argument("--home", help="the folder that takes everything; default: .demo", default=".demo"),
                        _argument(
                            "--port",
                            help="port on 127.0.0.1; default: up takes 8080 when free, else a free one",
                            type=int,
                        ),
                    ),
                ),
                ActionCommand(
                    name="stop",
                    help="Stop a backfill, or all, before the next partition; says what is still running",
                    func=_lazy("stopping", "stop"),
                    args=(
                        *_SWITCHED,
                        _argument(
                            "--wait", help="seconds to wait until nothing runs any more; 1 when it still does", type=int
                        ),
                    ),
                ),
                ActionCommand(
                    name="resume",
                    help="Lift the stop of a backfill, or of all; says how each halted one goes on",
                    func=_lazy("stopping", "resume"),
                    args=_SWITCHED,
                ),
                ActionCommand(
                    name="status",
                    help="Show one backfill: its summary, what it waits for, how it goes on, and its audit trail",
                    func=_lazy("ledger", "status"),
                    args=(
                        _BACKFILL_ID,
                        _argument(
                            "--trail", help="all of its audit trail, not only the last 40 lines", action="store_true"
                        ),
                    ),
                ),
                ActionCommand(
                    name="report",
                    help="Write the report of one backfill from the ledger, and say where its page is",
                    func=_lazy("ledger", "report"),
                    args=(
                        _BACKFILL_ID,
                        _argument("--folder", help="absolute path or URL instead of [safe_backfill] reports_folder"),
                    ),
                ),
                ActionCommand(
                    name="list",
                    help="List backfills, newest first",
                    func=_lazy("ledger", "list_backfills"),
                    args=(
                        _argument("--name", help="only those of this spec"),
                        _argument("--limit", help="how many", type=int, default=20),
                        _argument(
                            "--live",
                            help="instead the ranges that guarded scheduled runs hold, and the claims given up",
                            action="store_true",
                        ),
                    ),
                ),
                ActionCommand(
                    name="abandon",
                    help="Give up a backfill that published nothing, or a dead scheduled run's claim; free its range",
                    func=_lazy("ledger", "abandon"),
                    args=(
                        _argument("backfill_id", help="its id; or a claim's, from `airflow safe-backfill list --live`"),
                        _argument("--reason", help="why", required=True),
                        _argument(
                            "--publish-is-dead",
                            help="of one that is publishing: neither its task nor a statement of it in the warehouse runs any more",
                            action="store_true",
                        ),
                        _argument(
                            "--rollback-is-dead",
                            help="the same of one that is on its way back: its rollback, which had put nothing back, is called off",
                            action="store_true",
                        ),
                    ),
                ),
                ActionCommand(
                    name="rollback",
                    help="Restore what a backfill published, by its id alone; needs neither its spec nor its DAGs",
                    description="As the task of rollback__<name> does it: the kill switch does not hold it back, a second call does nothing, "
                    "and one that was cut off is gone on with. It runs here, so this host must reach the warehouse.",
                    func=_lazy("way_back", "rollback"),
                    args=(
                        _BACKFILL_ID,
                        _argument(
                            "--force",
                            help="restore even though the range changed since; what gets overwritten is backed up",
                            action="store_true",
                        ),
                        _argument(
                            "--restore-overwritten",
                            help="bring back what a forced rollback overwrote, instead",
                            action="store_true",
                        ),
                        _argument(
                            "--publish-is-dead",
                            help="of one that is publishing: neither its task nor a statement of it in the warehouse runs any more",
                            action="store_true",
                        ),
                        _argument(
                            "--conn-id",
                            help="another connection that leads to its warehouse; default: that of its plan",
                        ),
                    ),
                ),
                ActionCommand(
                    name="accept",
                    help="Complete a backfill that is published_unverified, as its range is now",
                    func=_lazy("ledger", "accept_published"),
                    args=(_BACKFILL_ID, _argument("--reason", help="why", required=True)),
                ),
                ActionCommand(
                    name="stale",
                    help="List published partitions whose source moved since, or that something overwrote, and how to mend them",
                    func=_lazy("staleness", "stale"),
                    args=(
                        _argument("name", help="name of the spec"),
                        _argument("--fail", help="end with status 1 when there is one", action="store_true"),
                    ),
                ),
                ActionCommand(
                    name="leftovers",
                    help="List every stage, backup, shadow and old version: how old, how large, whose, kept until when",
                    func=_lazy("leftovers", "leftovers"),
                    args=(_CONN_ID,),
                ),
                ActionCommand(
                    name="cleanup",
                    help="Drop what backfills left aside and whose time is over; never what one may still need",
                    func=_lazy("leftovers", "cleanup"),
                    args=(_CONN_ID,),
                ),
                ActionCommand(
                    name="keep",
                    help="Keep what a backfill left aside, its way back above all, for longer than its spec says",
                    func=_lazy("leftovers", "keep"),
                    args=(
                        _BACKFILL_ID,
                        _argument("--until", help="a day, kept to its end in UTC, or a datetime", required=True),
                        _argument("--reason", help="why", required=True),
                    ),
                ),
            ),
        )
    ]
