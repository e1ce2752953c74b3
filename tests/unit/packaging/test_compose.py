"""docker-compose.yaml says what its images and Airflow understand, and holds no secret; no Docker is needed to see that."""

from __future__ import annotations

import re
import subprocess
import tomllib
from pathlib import Path
from typing import Any

import pytest
import yaml
from airflow.cli.cli_config import core_commands
from airflow.configuration import conf

from airflow_backfill_provider.cli import get_cli_commands

ROOT = Path(__file__).parents[3]
TEXT = (ROOT / "docker-compose.yaml").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load(TEXT)
SERVICES: dict[str, dict[str, Any]] = COMPOSE["services"]
AIRFLOW = ("api-server", "scheduler", "dag-processor", "triggerer")
LASTING = ("postgres", *AIRFLOW)

# Of the Compose specification, the keys that this file uses; a misspelt one would be refused.
SERVICE_KEYS = {
    "build", "command", "depends_on", "entrypoint", "environment", "healthcheck", "image", "ports", "restart", "volumes",
}  # fmt: skip
HEALTH_KEYS = {"test", "interval", "timeout", "retries", "start_period"}


def test_there_is_a_service_for_each_part_of_airflow_one_database_and_one_that_sets_up() -> None:
    assert set(SERVICES) == {*LASTING, "init"}
    assert all(SERVICES[name]["command"] == name for name in AIRFLOW)
    assert {command.name for command in core_commands} >= set(AIRFLOW)


@pytest.mark.parametrize("name", SERVICES)
def test_a_service_says_nothing_that_compose_would_not_understand(name: str) -> None:
    assert set(COMPOSE) == {"x-airflow", "x-job", "services", "volumes"}
    assert set(SERVICES[name]) <= SERVICE_KEYS
    assert set(SERVICES[name].get("healthcheck", {})) <= HEALTH_KEYS
    assert all(isinstance(value, str) for value in SERVICES[name]["environment"].values())


@pytest.mark.parametrize("name", LASTING)
def test_what_lasts_is_restarted_and_its_health_is_asked_in_bounded_time(name: str) -> None:
    check = SERVICES[name]["healthcheck"]
    assert SERVICES[name]["restart"] == "unless-stopped"
    assert check["test"][0] == "CMD"
    assert re.fullmatch(r"\d+s", check["interval"]) is not None
    assert re.fullmatch(r"\d+s", check["timeout"]) is not None


@pytest.mark.parametrize(("name", "job"), [("dag-processor", "DagProcessorJob"), ("triggerer", "TriggererJob")])
def test_what_serves_no_health_page_is_asked_for_by_its_own_job(name: str, job: str) -> None:
    assert SERVICES[name]["healthcheck"]["test"] == ["CMD", "airflow", "jobs", "check", "--job-type", job, "--local"]


def test_the_schedulers_health_page_is_served_where_it_is_asked() -> None:
    assert SERVICES["scheduler"]["environment"]["AIRFLOW__SCHEDULER__ENABLE_HEALTH_CHECK"] == "true"
    port = conf.get("scheduler", "scheduler_health_check_server_port")
    assert f"http://127.0.0.1:{port}/health" in SERVICES["scheduler"]["healthcheck"]["test"]


def test_nothing_starts_before_what_it_needs() -> None:
    conditions = {"service_healthy": LASTING, "service_completed_successfully": ("init",)}
    for name in (*AIRFLOW, "init"):
        needs = {other: wish["condition"] for other, wish in SERVICES[name]["depends_on"].items()}
        assert set(needs) == ({"postgres"} if name == "init" else {"postgres", "init"})
        assert all(other in conditions[condition] for other, condition in needs.items())
    assert SERVICES["init"]["restart"] == "no"


def test_a_database_that_still_runs_its_first_scripts_is_not_taken_for_ready() -> None:
    assert "--host" in SERVICES["postgres"]["healthcheck"]["test"]
    assert "CREATE DATABASE ledger" in (ROOT / "docker" / "create-ledger.sql").read_text(encoding="utf-8")


@pytest.mark.parametrize("name", SERVICES)
def test_volumes_are_declared_and_mounted_files_are_there(name: str) -> None:
    for volume in SERVICES[name]["volumes"]:
        source, target, *mode = volume.split(":")
        assert target.startswith("/")
        if source.startswith("."):
            assert mode == ["ro"]
            assert (ROOT / source).exists()
        else:
            assert source in COMPOSE["volumes"]


@pytest.mark.parametrize("name", [*AIRFLOW, "init"])
def test_every_part_of_airflow_has_the_provider_the_dags_and_the_same_settings(name: str) -> None:
    service = SERVICES[name]
    assert "./airflow_backfill_provider:/opt/provider/airflow_backfill_provider:ro" in service["volumes"]
    assert f"./dags:{service['environment']['AIRFLOW__CORE__DAGS_FOLDER']}:ro" in service["volumes"]
    assert COMPOSE["x-airflow"]["environment"].items() <= service["environment"].items()


def test_every_setting_is_one_that_airflow_knows() -> None:
    names = [name.removeprefix("AIRFLOW__").lower().split("__") for name in COMPOSE["x-airflow"]["environment"]]
    known = conf.configuration_description
    assert [name for name in names if name[1] not in known.get(name[0], {"options": {}})["options"]] == []


def test_every_secret_comes_from_outside_and_has_no_default() -> None:
    asked = re.findall(r"\$\{(\w+)([^}]*)\}", TEXT.split("\nx-airflow", 1)[1])
    assert {name for name, _ in asked} == {
        "AIRFLOW_FERNET_KEY", "AIRFLOW_JWT_SECRET", "AIRFLOW_PORT", "POSTGRES_PASSWORD",
    }  # fmt: skip
    assert [name for name, rest in asked if name != "AIRFLOW_PORT" and not rest.startswith(":?")] == []
    for service in SERVICES.values():
        for name, value in service["environment"].items():
            if re.search(r"PASSWORD|SECRET|KEY|CONN|LEDGER", name):
                assert ":?" in value, name


def test_only_the_web_server_is_published_and_only_on_loopback() -> None:
    published = {name: service["ports"] for name, service in SERVICES.items() if "ports" in service}
    assert list(published) == ["api-server"]
    assert all(port.startswith("127.0.0.1:") for port in published["api-server"])


def test_init_migrates_then_connects_then_makes_pool_switch_and_ledger() -> None:
    script = SERVICES["init"]["command"][0].replace("$$", "$")
    steps = ["airflow db migrate", "airflow connections add safe_backfill_ledger", "airflow safe-backfill init"]
    places = [script.index(step) for step in steps]
    assert places == sorted(places)
    assert "init" in {command.name for group in get_cli_commands() for command in group.subcommands}
    assert subprocess.run(["bash", "-n"], input=script, text=True, check=False).returncode == 0


def test_the_image_has_the_airflow_that_is_tested_and_installs_extras_that_exist() -> None:
    text = (ROOT / "docker" / "Dockerfile").read_text(encoding="utf-8")
    pinned = re.search(r"^apache-airflow==(.+)$", (ROOT / "constraints.txt").read_text(encoding="utf-8"), re.M)
    assert pinned is not None
    assert set(re.findall(r"apache/airflow:([0-9.]+)-|apache-airflow==([0-9.]+)", text)) == {
        (pinned[1], ""), ("", pinned[1]),
    }  # fmt: skip
    asked = re.search(r"/opt/provider\[([a-z,]+)\]", text)
    assert asked is not None
    extras = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]["optional-dependencies"]
    assert set(asked[1].split(",")) <= set(extras)
