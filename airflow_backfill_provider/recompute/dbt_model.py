"""From a dbt manifest to the SQL of one model that a backfill can run, or why it cannot."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import sqlglot
from jinja2 import Environment, TemplateError, nodes
from sqlglot import exp
from sqlglot.errors import SqlglotError

from airflow_backfill_provider.errors import SpecError, TransformRefused
from airflow_backfill_provider.recompute.dbt_command import compile_manifest
from airflow_backfill_provider.spec.dbt import CompiledModel
from airflow_backfill_provider.spec.model import BackfillSpec, TargetSpec
from airflow_backfill_provider.spec.transforms import DbtTransform
from airflow_backfill_provider.transform import EventTime, cut_to_window, held_to_batch

UNPROVEN = (
    "Of a dbt model, its SELECT is run: neither its hooks nor its tests are, and nothing of it is built by dbt.",
    "Whether a macro of the project takes dbt's filter off a table (ref(…).render()) is not seen; in the model's own file it is.",
)
_SPEAKS = {"duckdb": {"duckdb"}, "postgres": {"postgres"}, "databricks": {"databricks", "spark"}}
"""The dbt adapters that write an engine's SQL."""
_CHANGING = ("run_started_at", "invocation_id", "modules.datetime")
_WRITES = (exp.DML, exp.DDL, exp.Drop, exp.Alter, exp.TruncateTable, exp.Copy)


def with_compiled_model(spec: BackfillSpec, dialect: str) -> BackfillSpec:
    """The spec with its dbt model compiled for the engine; as it is where that was done, or where it has no such model.

    :raises SpecError: dbt, the project or the model is not there, or is for another engine.
    :raises TransformRefused: the model is none that a backfill can run.
    :raises CodeFailed: dbt could not compile it.
    """
    transform = spec.transform
    if not isinstance(transform, DbtTransform) or transform.compiled is not None:
        return spec
    manifest = compile_manifest(transform.dbt, spec.compute.statement_timeout)
    node = find_model(manifest, transform.dbt.model)
    if _kind(node) == "incremental":
        # Whether it asks for is_incremental() cannot be told from its file: a macro may ask for it.
        if node["config"].get("full_refresh") is False:
            raise TransformRefused(
                f"{transform.origin} has full_refresh: false, so dbt compiles it with is_incremental() true, which may be a SELECT of "
                "what is new only. Make it a microbatch model, or write what a backfill needs as transform.sql."
            )
        manifest = compile_manifest(transform.dbt, spec.compute.statement_timeout, full_refresh=True)
    compiled = compiled_model(manifest, transform.dbt.model, spec.target, dialect)
    return spec.model_copy(update={"transform": transform.model_copy(update={"compiled": compiled})})


def find_model(manifest: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    """The one model of that name, or ``package.name``.

    :raises SpecError: there is none, several, or it is disabled.
    """
    package, _, short = name.rpartition(".")
    models: list[Mapping[str, Any]] = [node for node in manifest["nodes"].values() if node["resource_type"] == "model"]
    found = [node for node in models if node["name"] == short and package in ("", node["package_name"])]
    if len(found) == 1:
        return found[0]
    if found:
        there = ", ".join(sorted(f"{node['package_name']}.{short} ({node['original_file_path']})" for node in found))
        raise SpecError(f"transform.dbt.model {name} names {len(found)} models: {there}. Write package.name of one.")
    if any(node["name"] == short for nodes in manifest.get("disabled", {}).values() for node in nodes):
        raise SpecError(f"transform.dbt.model {name} is disabled in the project, so dbt compiles nothing of it.")
    close = difflib.get_close_matches(short, [node["name"] for node in models], n=3)
    hint = f" Did you mean {' or '.join(close)}?" if close else ""
    raise SpecError(f"transform.dbt.model {name}: the project has {len(models)} models, and none is called so.{hint}")


def compiled_model(manifest: Mapping[str, Any], name: str, target: TargetSpec, dialect: str) -> CompiledModel:
    """What a backfill runs of the model, from the manifest that dbt wrote when it compiled it.

    :raises SpecError: it is for another engine.
    :raises TransformRefused: it is none that a backfill can run.
    """
    metadata, node = manifest["metadata"], find_model(manifest, name)
    origin = f"dbt model {name}"
    if metadata.get("adapter_type") not in _SPEAKS.get(dialect, {dialect}):
        raise SpecError(
            f"{origin} is compiled for {metadata.get('adapter_type')}, and compute.conn_id leads to {dialect}. Choose the profile's "
            "target that speaks the same SQL with transform.dbt.target."
        )
    _require_select(node, origin)
    kind = _kind(node)
    cautions = [*_hook_cautions(node, origin), *_other_cautions(node, origin, target)]
    if kind == "microbatch":
        _require_same_batches(node, target, origin)
        parents = _bounded_parents(manifest, node, dialect, origin)
        bounded = held_to_batch(node["compiled_code"], parents, dialect, origin)
        if not bounded.relations:
            cautions.append(
                f"{origin} reads nothing that has an event_time, so every batch reads everything. Set event_time on what it reads."
            )
    else:
        bounded = cut_to_window(node["compiled_code"], target.partition_by, dialect, origin)
        cautions.append(
            f"{origin} is no microbatch model: each partition is what a full build of it has there, so each computes as much of the "
            "whole as the engine cannot leave out."
        )
    return CompiledModel(
        sql=bounded.template,
        file=node["original_file_path"],
        kind=kind,
        bounded=bounded.relations,
        cautions=tuple(cautions),
        dbt_version=str(metadata.get("dbt_version", "")),
    )


def _kind(node: Mapping[str, Any]) -> str:
    config = node["config"]
    if config["materialized"] == "incremental" and config.get("incremental_strategy") == "microbatch":
        return "microbatch"
    return str(config["materialized"])


def _require_select(node: Mapping[str, Any], origin: str) -> None:
    """:raises TransformRefused: it is not built as a table from one SELECT that is known now."""
    if node.get("language", "sql") != "sql":
        raise TransformRefused(f"{origin} is written in {node['language']}; use transform.python.")
    if _kind(node) not in ("table", "incremental", "microbatch"):
        raise TransformRefused(
            f"{origin} is materialized as {_kind(node)}; a backfill rebuilds a model that is a table, incremental or microbatch."
        )
    if node["config"].get("sql_header"):
        raise TransformRefused(
            f"{origin} has a sql_header, statements that run before its SELECT; a backfill runs the SELECT alone."
        )
    raw = node["raw_code"]
    if re.search(r"\bmodel\s*\.\s*batch\b|__dbt_internal_microbatch", raw):
        raise TransformRefused(
            f"{origin} asks for model.batch, which dbt knows in a run and not when it compiles. Let event_time bound what it reads."
        )
    if not node.get("compiled_code"):
        raise TransformRefused(f"dbt compiled {origin} to nothing.")


def _require_same_batches(node: Mapping[str, Any], target: TargetSpec, origin: str) -> None:
    size = node["config"].get("batch_size")
    if size != target.grain:
        raise TransformRefused(
            f"{origin} is built in batches of one {size}, and target.grain is {target.grain}: its SELECT may give other rows for "
            f"another window. Set target.grain: {size}."
        )


def _hook_cautions(node: Mapping[str, Any], origin: str) -> Iterator[str]:
    """:raises TransformRefused: a hook writes rows or changes a table, which a backfill would leave out."""
    for moment in ("pre-hook", "post-hook"):
        for hook in node["config"].get(moment) or ():
            sql = str(hook["sql"] if isinstance(hook, Mapping) else hook)
            if _writes(sql):
                raise TransformRefused(
                    f"{origin} has a {moment} that writes: {_short(sql)}. A backfill stages the compiled rows and runs no hook, so "
                    "they would differ from those of dbt. Move that into the SELECT of the model."
                )
            yield f"{origin} has a {moment}, which a backfill does not run: {_short(sql)}"


def _writes(hook: str) -> bool:
    """Whether a statement of the hook is known to write; what a macro makes of it is not."""
    plain = re.sub(r"\{\{.*?\}\}", "placeholder", re.sub(r"\{[%#].*?[%#]\}", " ", hook, flags=re.S), flags=re.S)
    try:
        return any(isinstance(one, _WRITES) and not isinstance(one, exp.Select) for one in sqlglot.parse(plain))
    except SqlglotError:
        return bool(re.match(r"\s*(insert|update|delete|merge|truncate|drop|create|alter|copy)\b", plain, re.I))


def _other_cautions(node: Mapping[str, Any], origin: str, target: TargetSpec) -> Iterator[str]:
    for name in _CHANGING:
        if name in node["raw_code"]:
            yield f"{origin} uses {name}: its SQL differs each time that it is compiled, so a cleared scope_partitions refuses it."
    built = [part.casefold() for part in (node.get("database"), node.get("schema"), node.get("alias")) if part]
    wanted = [part.casefold() for part in target.table.split(".")]
    if built[-len(wanted) :] != wanted:
        yield f"{origin} builds {'.'.join(built)}, and the backfill publishes to {target.table}."


def _bounded_parents(
    manifest: Mapping[str, Any], node: Mapping[str, Any], dialect: str, origin: str
) -> Sequence[EventTime]:
    """What dbt would bound in a run: whatever it refers to that has an event_time, but for what it renders itself."""
    known = {**manifest["nodes"], **manifest["sources"]}
    parents = {uid: known[uid] for uid in node["depends_on"]["nodes"] if uid in known}
    plain = _unfiltered(node["raw_code"], parents, origin)
    return [
        EventTime(_relation(parent), _event_time(parent, dialect))
        for uid, parent in parents.items()
        if parent["config"].get("event_time") and uid not in plain
    ]


def _relation(parent: Mapping[str, Any]) -> str:
    """What its name is in the compiled SQL; an ephemeral model is a WITH query there."""
    if parent["config"].get("materialized") == "ephemeral":
        return f"__dbt__cte__{parent.get('alias') or parent['name']}"
    return str(parent["relation_name"])


def _event_time(parent: Mapping[str, Any], dialect: str) -> str:
    """The column as dbt writes it: quoted where the project says so."""
    column = str(parent["config"]["event_time"])
    columns: Mapping[str, Mapping[str, Any]] = parent.get("columns") or {}
    written = next((one for one in columns.values() if one["name"] == column), {})
    quote = written.get("quote")
    if quote is None and written:
        quote = (parent.get("quoting") or {}).get("column")
    return exp.to_identifier(column, quoted=True).sql(dialect=dialect) if quote else column


def _unfiltered(raw: str, parents: Mapping[str, Mapping[str, Any]], origin: str) -> set[str]:
    """The parents that the model reads as ``ref(…).render()``, which dbt does not filter.

    :raises TransformRefused: it reads one both ways, or renders what cannot be told.
    """
    try:
        tree = Environment(extensions=["jinja2.ext.do", "jinja2.ext.loopcontrols"]).parse(raw)
    except TemplateError:
        if re.search(r"\.\s*render\s*\(", raw):
            raise TransformRefused(
                f"{origin} calls render(), and its file cannot be read as Jinja to see of what."
            ) from None
        return set()
    calls = [one for one in tree.find_all(nodes.Call) if _named(one) in ("ref", "source")]
    rendered = [
        call.node.node
        for call in tree.find_all(nodes.Call)
        if isinstance(call.node, nodes.Getattr) and call.node.attr == "render"
    ]
    plain: set[str] = set()
    for one in rendered:
        uid = _parent(one, parents) if any(one is call for call in calls) else None
        if uid is None:
            raise TransformRefused(
                f"{origin} calls render() of something else than ref('…') or source('…', '…'), so it cannot be told what dbt would not "
                "filter. Write it as {{ ref('…').render() }}."
            )
        plain.add(uid)
    filtered = {_parent(call, parents) for call in calls if not any(call is one for one in rendered)}
    if both := plain & filtered:
        raise TransformRefused(
            f"{origin} reads {', '.join(parents[uid]['name'] for uid in sorted(both))} both as dbt filters it and with render(): the "
            "compiled SQL does not tell the two apart. Read it one way, or through a model in between."
        )
    return plain


def _named(call: nodes.Call) -> str:
    return call.node.name if isinstance(call.node, nodes.Name) else ""


def _parent(call: nodes.Expr, parents: Mapping[str, Mapping[str, Any]]) -> str | None:
    """The parent that a ``ref`` or ``source`` with plain words means."""
    if not isinstance(call, nodes.Call) or not all(isinstance(one, nodes.Const) for one in call.args):
        return None
    words = [one.value for one in call.args if isinstance(one, nodes.Const)]
    for uid, parent in parents.items():
        own = [parent.get("source_name"), parent["name"]] if _named(call) == "source" else [parent["name"]]
        if words[-len(own) :] == own and (parent["resource_type"] == "source") == (_named(call) == "source"):
            return uid
    return None


def _short(sql: str) -> str:
    text = " ".join(sql.split())
    return text if len(text) <= 120 else f"{text[:119]}…"
