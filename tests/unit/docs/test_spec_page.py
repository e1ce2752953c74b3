"""``docs/spec.md`` and ``docs/spec.schema.json`` say what the loader does: every key, every example, every spec."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import jsonschema
import pytest

from airflow_backfill_provider.spec.load import load_spec_text
from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.spec.report_queries import ReportQuery
from airflow_backfill_provider.spec.schema import text
from airflow_backfill_provider.spec.throttle import Throttle
from airflow_backfill_provider.spec.tree import read_tree

ROOT = Path(__file__).parents[3]
DOCS = ROOT / "docs"
PAGE = (DOCS / "spec.md").read_text(encoding="utf-8")
SCHEMA = json.loads((DOCS / "spec.schema.json").read_text(encoding="utf-8"))
VALIDATOR = jsonschema.Draft202012Validator(SCHEMA)
TOP = [field.alias or name for name, field in BackfillSpec.model_fields.items()]
AROUND = {
    "name": "name: documented\n",
    "target": "target: {table: analytics.fct_orders, partition_by: order_date, key: [order_id]}\n",
    "transform": "transform: {sql: a.sql}\n",
    "compute": "compute: {conn_id: warehouse}\n",
}


def whole(example: str) -> str:
    """The example with the parts that a spec needs and it leaves out."""
    return example + "".join(line for key, line in AROUND.items() if not re.search(f"^{key}:", example, re.MULTILINE))


def written(page: Path) -> Iterator[str]:
    """The YAML blocks of a page that are specs or parts of one."""
    keys = "|".join(TOP)
    for block in re.findall(r"^```yaml\n(.*?)^```", page.read_text(encoding="utf-8"), re.DOTALL | re.MULTILINE):
        if re.match(f"(#.*\n)*({keys}):", block):
            yield block


EXAMPLES = list(written(DOCS / "spec.md"))
SPECS = [
    *(
        pytest.param(whole(block), id=f"{page.stem}-{number}")
        for page in [*sorted(DOCS.glob("*.md")), ROOT / "README.md"]
        for number, block in enumerate(written(page))
    ),
    *(
        pytest.param(path.read_text(encoding="utf-8"), id=path.name)
        for path in sorted((ROOT / "dags" / "backfills").glob("*.yaml"))
    ),
]


def problems(yaml: str) -> list[str]:
    return [f"{error.json_path}: {error.message}" for error in VALIDATOR.iter_errors(read_tree(yaml).data)]


def test_the_schema_beside_the_page_is_that_of_the_code() -> None:
    assert (DOCS / "spec.schema.json").read_text(encoding="utf-8") == text(), "run: make schema"
    jsonschema.Draft202012Validator.check_schema(SCHEMA)


@pytest.mark.parametrize("yaml", SPECS)
def test_every_spec_and_example_loads_and_validates(yaml: str) -> None:
    load_spec_text(yaml, "example.yaml", lambda path: "SELECT 1")
    assert problems(yaml) == []


@pytest.mark.parametrize(
    ("part", "told"),
    [
        ("kind: corection\n", "$.kind"),
        ("tranform: {}\n", "'tranform' was unexpected"),
        ("transform: {sql: a.sql, eras: [{sql: a.sql}]}\n", "$.transform"),
        ("transform: {}\n", "$.transform"),
        ("transform: {eras: [{until: '2024-01-01'}]}\n", "$.transform.eras[0]: 'sql' is a required property"),
        ("checks: [{not_nul: {column: a}}]\n", "$.checks[0]"),
        ("checks: [{not_null: {column: a}, unique: {column: a}}]\n", "$.checks[0]"),
        ("checks: [{kind: not_null, column: a}]\n", "$.checks[0]"),
        ("compare: [{sum: {column: a, change_between: [-8%]}}]\n", "$.compare[0].sum.change_between"),
        ("compare: [{row_diff: {max_aded: 0}}]\n", "$.compare[0].row_diff"),
        ("rollback: {keep_for: 45}\n", "$.rollback.keep_for"),
        ("rollback: {keep_for: 45 days}\n", "$.rollback.keep_for"),
        ("source: {table: a.b, partition_by: c, cutoff: ingested_at}\n", "$.source.cutoff"),
        ("source: {table: a.b, partition_by: c, on_moved: ignore}\n", "$.source.on_moved"),
    ],
)
def test_an_editor_is_told_what_the_loader_would_refuse(part: str, told: str) -> None:
    assert any(told in problem for problem in problems(whole(part))), problems(whole(part))


SECTIONS = {
    "target": "TargetSpec",
    "transform": "SqlTransform",
    "transform.eras": "Era",
    "transform.python": "PythonTransform",
    "transform.dbt": "DbtModel",
    "transform.dag": "DagRunSpec",
    "transform.databricks_job": "DatabricksJobSpec",
    "source": "SourceSpec",
    "source.cutoff": "CutoffSpec",
    "source.history": "HistoryTable",
    "compute": "ComputeSpec",
    "approval": "ApprovalSpec",
    "trial": "TrialSpec",
    "control_period": "ControlPeriodSpec",
    "report_queries": "ReportQuery",
    "schema": "SchemaSpec",
    "schema.columns": "NewColumn",
    "schema.semantic_change": "SemanticChange",
    "range": "RangeSpec",
    "range.evidence": "RangeEvidence",
    "range.evidence.metric": "Level",
}


@pytest.mark.parametrize(("section", "definition"), SECTIONS.items(), ids=list(SECTIONS))
def test_every_key_has_a_line_in_the_table_of_its_section_and_an_example(section: str, definition: str) -> None:
    _, _, rest = PAGE.partition(f"# `{section}`")
    table = set(re.findall(r"`(\w+)`", " ".join(re.findall(r"^\| (`[^|]*)\|", rest.split("\n#")[0], re.MULTILINE))))
    assert table == set(SCHEMA["$defs"][definition]["properties"])
    assert all(re.search(rf"\b{key}:", "\n".join(EXAMPLES)) for key in table)


def test_the_keys_at_the_top_and_of_publish_and_rollback_are_all_there() -> None:
    wanted = {*TOP}
    wanted |= {*SCHEMA["$defs"]["PublishSpec"]["properties"], *SCHEMA["$defs"]["RollbackSpec"]["properties"]}
    lines = " ".join(re.findall(r"^\| (`[^|]*)\|", PAGE, re.MULTILINE))
    assert wanted <= set(re.findall(r"`(\w+)`", lines))
    assert all(re.search(rf"\b{key}:", "\n".join(EXAMPLES)) for key in wanted - {"checks"})


def test_the_defaults_on_the_page_are_those_of_the_code() -> None:
    spec = load_spec_text(whole(""), "example.yaml", lambda path: "SELECT 1")
    shown = dict(re.findall(r"^\| `(\w+)` \| `([^`]+)` \|", PAGE, re.MULTILINE))
    documents = spec.model_dump(mode="json")
    found = {**documents, **documents["target"], **documents["transform"], **documents["compute"]}
    found |= {
        **documents["publish"],
        **documents["rollback"],
        **documents["trial"],
        **documents["approval"],
        "on_moved": "refuse",
    }
    found |= {"mode": spec.schema_gate.mode, "severity": ReportQuery.model_fields["severity"].default}
    found |= Throttle(name="night", quiet_hours="22:00-06:00").model_dump(
        mode="json", include={"every", "give_up_after", "live_lag"}
    )
    assert {key: str(found[key]).lower() for key in shown} == {key: value.lower() for key, value in shown.items()}


def test_the_page_is_linked() -> None:
    assert "(spec.md)" in (DOCS / "index.md").read_text(encoding="utf-8")
