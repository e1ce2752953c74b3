"""``transform.eras`` as it is written: which file for which partition, and what cannot be meant."""

from __future__ import annotations

from typing import Any

import pytest
from pydantic import ValidationError

from airflow_backfill_provider.errors import SpecError
from airflow_backfill_provider.spec.hashes import intent_hash, spec_hash
from airflow_backfill_provider.spec.load import load_spec_text
from airflow_backfill_provider.spec.model import BackfillSpec
from airflow_backfill_provider.transform import sql_of
from airflow_backfill_provider.windows import Grain, parse_key

FILES = {"old.sql": "SELECT 1", "new.sql": "SELECT 2", "empty.sql": " "}


def load(eras: str, target: str = "") -> BackfillSpec:
    text = f"""\
name: fct
target: {{table: analytics.fct, partition_by: day, key: [id]{target}}}
compute: {{conn_id: w}}
transform:
  eras:
{eras}"""
    return load_spec_text(text, "fct.yaml", FILES.__getitem__)


def refusal(eras: str, target: str = "") -> str:
    with pytest.raises(SpecError) as caught:
        load(eras, target)
    return str(caught.value)


TWO = "    - {until: '2024-03-01', sql: old.sql}\n    - {sql: new.sql}\n"


def test_each_partition_has_the_file_of_the_era_that_it_starts_in() -> None:
    spec = load(TWO)
    days = {key: sql_of(spec, parse_key(key, Grain.DAY)) for key in ("2024-02-29", "2024-03-01", "2024-03-02")}
    assert [(one.sql, one.file) for one in days.values()] == [
        ("SELECT 1", "old.sql"),
        ("SELECT 2", "new.sql"),
        ("SELECT 2", "new.sql"),
    ]
    assert BackfillSpec.model_validate_json(spec.model_dump_json()) == spec


@pytest.mark.parametrize(
    ("target", "until", "before", "after"),
    [
        (", timezone: America/New_York", "2024-03-01", "2024-02-29", "2024-03-01"),
        (", timezone: America/New_York", "2024-03-01T05:00:00+00:00", "2024-02-29", "2024-03-01"),
        (", grain: month", "2024-03", "2024-02", "2024-03"),
        (
            ", grain: hour, timezone: America/New_York",
            "2024-11-03T01:00:00-05:00",
            "2024-11-03T01-0400",
            "2024-11-03T01-0500",
        ),
    ],
)
def test_an_era_ends_in_the_zone_of_the_target(target: str, until: str, before: str, after: str) -> None:
    spec = load(f"    - {{until: '{until}', sql: old.sql}}\n    - {{sql: new.sql}}\n", target)
    grain, zone = spec.target.grain, spec.target.timezone
    assert [sql_of(spec, parse_key(key, grain, zone)).file for key in (before, after)] == ["old.sql", "new.sql"]


@pytest.mark.parametrize(
    ("eras", "target", "told"),
    [
        (
            "    - {until: '2024-03-15', sql: old.sql}\n    - {sql: new.sql}\n",
            ", grain: month",
            "line 6: transform.eras[0].until = '2024-03-15': cuts partition 2024-03",
        ),
        (
            "    - {until: '2024-03-01T00:00:00+00:00', sql: old.sql}\n    - {sql: new.sql}\n",
            ", timezone: Asia/Tokyo",
            "cuts partition 2024-03-01 ([2024-02-29T15:00:00Z, 2024-03-01T15:00:00Z)) in two",
        ),
        (TWO.replace("2024-03-01", "soon"), "", "transform.eras[0].until = 'soon': 'soon' is neither a date"),
        (TWO.replace("until: '2024-03-01', ", ""), "", "line 6: transform.eras[0]: needs until"),
        (TWO.replace("{sql: new", "{until: '2024-04-01', sql: new"), "", "line 7: transform.eras[1].until"),
        (
            "    - {until: '2024-03-01', sql: old.sql}\n    - {until: '2024-03-01', sql: old.sql}\n    - {sql: new.sql}\n",
            "",
            "line 7: transform.eras[1].until = '2024-03-01': does not come after the end of the era before it",
        ),
        (TWO, ", grain: list", "grain list has none"),
        (TWO.replace("new.sql", "empty.sql"), "", "line 7: transform.eras[1].sql = 'empty.sql': the SQL file is empty"),
        (TWO.replace("{sql: new", "{file: a.sql, sql: new"), "", "line 7: transform.eras[1].file: the path"),
        (TWO.replace("2024-03-01", "2024-03-01', until_: '"), "", "unknown key; did you mean 'until'?"),
        (TWO + "  sql: new.sql\n", "", "give either sql, the path of the SQL file, or eras"),
        ("    []\n", "", "give either sql"),
    ],
)
def test_eras_that_cannot_be_meant_are_refused_where_they_stand(eras: str, target: str, told: str) -> None:
    assert told in refusal(eras, target)


def test_a_file_that_cannot_be_read_is_named_with_its_era() -> None:
    def gone(path: str) -> str:
        raise FileNotFoundError(2, "No such file or directory", path)

    text = f"name: fct\ntarget: {{table: a.b, partition_by: d, key: [k]}}\ncompute: {{conn_id: w}}\ntransform:\n  eras:\n{TWO}"
    with pytest.raises(SpecError, match=r"line 7: transform\.eras\[1\]\.sql = 'new\.sql': the SQL file cannot be read"):
        load_spec_text(text, "fct.yaml", gone)


def test_the_text_and_the_bound_of_every_era_decide_the_intent_and_its_place_does_not() -> None:
    def built(*eras: dict[str, str]) -> BackfillSpec:
        document: dict[str, Any] = {
            "name": "fct",
            "target": {"table": "a.b", "partition_by": "d", "key": ["k"]},
            "transform": {"eras": list(eras)},
            "compute": {"conn_id": "w"},
        }
        return BackfillSpec.model_validate(document)

    def hashes(spec: BackfillSpec) -> tuple[str, str]:
        return intent_hash(spec, ["2024-01-01"]), spec_hash(spec)

    old, new = {"until": "2024-03-01", "sql": "SELECT 1", "file": "a.sql"}, {"sql": "SELECT 2"}
    one = hashes(built(old, new))
    assert hashes(built(old | {"file": "b.sql"}, new)) == one
    others = [
        built(old | {"sql": "SELECT 3"}, new),
        built(old, new | {"sql": "SELECT 3"}),
        built(old | {"until": "2024-03-02"}, new),
        built(new),
    ]
    intents, specs = zip(*map(hashes, others), strict=True)
    assert len({one[0], *intents}) == len({one[1], *specs}) == 5


def test_a_spec_built_in_python_is_held_to_the_same_rules() -> None:
    with pytest.raises(ValidationError, match="cuts partition 2024-03"):
        BackfillSpec.model_validate(
            {
                "name": "fct",
                "target": {"table": "a.b", "partition_by": "d", "key": ["k"], "grain": "month"},
                "transform": {"eras": [{"until": "2024-03-02", "sql": "SELECT 1"}, {"sql": "SELECT 2"}]},
                "compute": {"conn_id": "w"},
            }
        )
