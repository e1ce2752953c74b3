"""From a spec to its two DAGs: ``backfill__<name>`` and ``rollback__<name>``. Wiring only.

.. code-block:: python

    from pathlib import Path
    from airflow_backfill_provider.dag_factory import backfill_dags
    globals().update(backfill_dags(Path(__file__).parent / "backfills"))
"""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, BaseOperator, Param, TaskGroup, chain, task_group

from airflow_backfill_provider.errors import SpecError
from airflow_backfill_provider.malformed_spec import MalformedSpec
from airflow_backfill_provider.operators.announce import AnnouncePublishOperator, assets
from airflow_backfill_provider.operators.atomic_publish import AtomicPublishOperator
from airflow_backfill_provider.operators.cleanup import CleanUpOperator
from airflow_backfill_provider.operators.pool import PoolProbeOperator
from airflow_backfill_provider.operators.report import ReportOperator
from airflow_backfill_provider.operators.rollback import RollbackOperator
from airflow_backfill_provider.operators.scope_partitions import ScopePartitionsOperator
from airflow_backfill_provider.operators.stage_recompute import StageRecomputeOperator
from airflow_backfill_provider.operators.trial import TrialOperator
from airflow_backfill_provider.operators.validate_partition import ValidatePartitionOperator, ValidateRangeOperator
from airflow_backfill_provider.spec.load import find_specs, load_spec
from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.spec.request import Mode

TAGS = ("safe-backfill",)


def backfill_dag(spec: BackfillSpec, **dag_kwargs: Any) -> DAG:
    """The DAG that runs backfills of the spec's target; trigger it with conf.

    :param dag_kwargs: passed to :class:`airflow.sdk.DAG`, over what is set here.
    """
    with DAG(
        **{
            "dag_id": f"backfill__{spec.name}",
            "description": f"Rebuild published partitions of {spec.target.table}",
            "schedule": None,
            "catchup": False,
            "is_paused_upon_creation": False,  # a paused DAG means stopped
            "params": _backfill_params(),
            "tags": list(TAGS),
            "doc_md": _DOC.format(spec=spec),
            "default_args": {"retries": 2, "retry_delay": timedelta(seconds=10)},
            # Airflow counts per run: stages and validations together. At one, the scheduler would look at no other task
            # than the probe, and so never at the scope that ends it where its pool does not exist.
            "max_active_tasks": max(spec.compute.max_concurrency, 2),
        }
        | dag_kwargs
    ) as dag:
        pool: dict[str, Any] = {"pool": spec.compute.pool}
        place = _place(spec)
        # Downstream of the scope, so that whoever clears that clears both; "always" starts them together all the same.
        ahead: dict[str, Any] = {"priority_weight": 1_000_000, "trigger_rule": "always"}
        probe = PoolProbeOperator(task_id="pool_ready", **pool, **place | ahead)
        scope = ScopePartitionsOperator(
            task_id="scope_partitions",
            spec=spec,
            pool_probe=probe.task_id,
            weight_rule="absolute",  # not with the probe's
            **place,
        )

        @task_group(group_id="partitions")
        def partitions(batch: Any) -> None:
            # "upstream" gives stage 1, validate 1, …: the first evidence early. The default runs every stage first.
            mapped: dict[str, Any] = {
                "spec": spec,
                "batch": batch,
                "weight_rule": "upstream",
                "max_active_tis_per_dagrun": spec.compute.max_concurrency,  # of each alone: the DAG allows two at least
                "map_index_template": "{{ task.batch['label'] }}",
                **pool,
                **place,
            }
            stage = StageRecomputeOperator(task_id="stage_recompute", **mapped)
            stage >> ValidatePartitionOperator(task_id="validate_partition", **mapped)

        judged = ValidateRangeOperator(task_id="validate_range", spec=spec, **pool, **place)
        published = AtomicPublishOperator(task_id="atomic_publish", spec=spec, **pool, **place)
        report = ReportOperator(task_id="report", spec=spec, **place)
        mapped_group = partitions.expand(batch=scope.output)
        assert isinstance(mapped_group, TaskGroup)
        # Beside the report, since Airflow takes milliseconds for each key. A leaf: it must not fail a drill that came out well.
        announced = AnnouncePublishOperator.partial(
            task_id="announce",
            spec=spec,
            published=published.output,
            outlets=list(assets(spec.target.table)),
            trigger_rule="all_done",
            map_index_template="{{ task.batch['label'] }}",
            **place,
        ).expand(batch=scope.output)
        before: list[Any] = [scope]
        if spec.approval.required != "never":
            before.append(_gate("approve_plan", "plan", spec))
        if spec.trial.enabled or spec.control_period:
            before.append(TrialOperator(task_id="trial", spec=spec, **pool, **place))
        if spec.trial.enabled:
            if spec.trial.review or (spec.trial.review is None and spec.approval.required != "never"):
                before.append(_gate("review_trial", "review", spec))
        gate = [_gate("approve_publish", "publish", spec)] if spec.approval.before_publish else []
        chain(*before, mapped_group, judged, *gate, published, [announced, report])
        scope >> [probe, mapped_group]
    return dag


def rollback_dag(spec: BackfillSpec, **dag_kwargs: Any) -> DAG:
    """The DAG that restores what a backfill of the spec published; trigger it with ``{"backfill_id": …}``."""
    with DAG(
        **{
            "dag_id": f"rollback__{spec.name}",
            "description": f"Restore partitions of {spec.target.table} from a backfill's backup",
            "schedule": None,
            "catchup": False,
            "is_paused_upon_creation": False,
            "params": {
                "backfill_id": Param(
                    type="string",
                    pattern="^[0-9a-f]{12}$",
                    title="Backfill id",
                    description="12 characters, from the report or `airflow safe-backfill list`",
                ),
                "force": Param(
                    False,
                    type="boolean",
                    title="Force",
                    description="restore even though the range changed since; what gets overwritten is backed up",
                ),
                "restore_overwritten": Param(
                    False,
                    type="boolean",
                    title="Bring back what a forced rollback overwrote",
                    description="undoes a rollback that was forced, while the range is as that left it",
                ),
                "publish_is_dead": Param(
                    False,
                    type="boolean",
                    title="Its publish is dead",
                    description="neither its task nor a statement of it runs any more; only where Airflow cannot tell",
                ),
            },
            "tags": list(TAGS),
            "default_args": {"retries": 2, "retry_delay": timedelta(seconds=10)},
        }
        | dag_kwargs
    ) as dag:
        RollbackOperator(task_id="rollback", spec=spec, **_place(spec))
    return dag


def cleanup_dag(**dag_kwargs: Any) -> DAG:
    """The DAG ``backfill_cleanup``, which drops every day what backfills left aside and whose time is over.

    :param dag_kwargs: passed to :class:`airflow.sdk.DAG`, over what is set here.
    """
    settings: dict[str, Any] = {
        "dag_id": "backfill_cleanup",
        "description": "Drop stages, shadows and backups on the date that their specs state",
        "schedule": "@daily",
        "catchup": False,
        "max_active_runs": 1,
        "is_paused_upon_creation": False,
        "tags": list(TAGS),
        "default_args": {"retries": 2, "retry_delay": timedelta(minutes=5)},
    }
    with DAG(**settings | dag_kwargs) as dag:
        CleanUpOperator(task_id="cleanup")
    return dag


def backfill_dags(folder: str | Path) -> dict[str, DAG]:
    """Both DAGs of every spec in a folder, by DAG id.

    A spec that cannot be read becomes one import error under the spec's own path and takes no other DAG down.

    :param folder: where the ``*.yaml`` files are; absolute, or relative to the working directory.
    """
    dags: dict[str, DAG] = {}
    for path in find_specs(folder):
        try:
            spec = load_spec(path)
            if f"backfill__{spec.name}" in dags:
                raise SpecError(f"{path}: another spec in {folder} is named {spec.name!r} too; names must differ.")
        except SpecError as error:
            broken = MalformedSpec.of(path, error)
            dags[broken.dag_id] = broken
        else:
            dags |= {dag.dag_id: dag for dag in (backfill_dag(spec), rollback_dag(spec))}
    return dags


def _gate(task_id: str, gate: str, spec: BackfillSpec) -> BaseOperator:
    """A task that waits for a person; imported where one is needed, since every task parses this file anew."""
    from airflow_backfill_provider.operators.approval import ApprovalGateOperator

    return ApprovalGateOperator(task_id=task_id, gate=gate, spec=spec, **_place(spec))


def _place(spec: BackfillSpec) -> dict[str, Any]:
    """Where, and how early, the executor runs the tasks; what the spec leaves out is Airflow's default."""
    return spec.compute.model_dump(include={"queue", "priority_weight"}, exclude_none=True)


_DOC = """Rebuild published partitions of `{spec.target.table}`: recompute into staging, validate old against new,
publish the whole range in one commit.

Trigger with `{{"start_date": "2013-02-01", "end_date": "2013-06-30", "reason": "…"}}` (dates are inclusive; a month, `yesterday` or `-30d` will do, and without `end_date` it goes up to the last partition that is over).
Stop: set the Variable `safe_backfill_kill_switch`, pause this DAG, or give the pool `{spec.compute.pool}` 0 slots.
Resume: clear the failed tasks; finished partitions are reused. Undo: trigger `rollback__{spec.name}`.
"""


def _backfill_params() -> dict[str, Param]:
    dated = "[0-9]{4}(-[0-9]{2}(-[0-9]{2}([T ][0-9:.]+(Z|[+-][0-9]{2}:?[0-9]{2})?)?)?)?"
    bound = (
        f"^({dated}|[0-9]{{4}}-[0-9]{{2}}-[0-9]{{2}} \\(W[0-9]{{2}}\\)|today|yesterday|now|-[0-9]{{1,5}}(h|d|w|mo|y))$"
    )
    optional = ["null", "string"]
    return {
        "start_date": Param(
            None,
            type=optional,
            pattern=bound,
            title="Start",
            description="first day (2013-02-01), datetime, today, yesterday, now, or -30d",
        ),
        "end_date": Param(
            None,
            type=optional,
            pattern=bound,
            title="End",
            description="last day, exclusive when a datetime; empty: all that is over",
        ),
        "reason": Param("", type="string", maxLength=2000, title="Reason", description="kept in the audit trail"),
        "mode": Param(
            str(Mode.PUBLISH),
            enum=[str(mode) for mode in Mode],
            title="Mode",
            description="plan: print only; stage: stop when validated; publish: go through",
        ),
        "partitions": Param(
            [],
            type="array",
            items={"type": "string", "maxLength": 64},
            title="Partitions",
            description="instead of a range",
        ),
        "exclude": Param([], type="array", items={"type": "string", "maxLength": 64}, title="Exclude"),
        "expand": Param(False, type="boolean", title="Widen a range that cuts a partition to whole partitions"),
        "include_live": Param(False, type="boolean", title="Include the partition that is still being written"),
        "backfill_id": Param(
            None, type=optional, pattern="^[0-9a-f]{12}$", title="Go on with", description="an earlier backfill's id"
        ),
        "restage": Param(False, type="boolean", title="Throw staged work away and stage again"),
        "rebase": Param(False, type="boolean", title="Recompute exactly the partitions whose published rows moved"),
        "drill": Param(
            False,
            type="boolean",
            title="Drill",
            description="rehearse: one staged partition is damaged on purpose, nothing is published; without a range: the last three partitions",
        ),
        "waive_approval": Param(
            "",
            type="string",
            maxLength=2000,
            title="Waive the approval",
            description="why nobody needs to look; only from those whom the spec names",
        ),
    }
