"""An Airflow DAG without the product: it echoes its conf, and waits while a file is there."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

from airflow.sdk import DAG, get_current_context, task

with DAG("runner_smoke", schedule=None, is_paused_upon_creation=False):

    @task
    def echo() -> dict[str, Any]:
        conf = get_current_context()["dag_run"].conf or {}
        if "fail_unless" in conf and not Path(conf["fail_unless"]).exists():
            raise RuntimeError(f"{conf['fail_unless']} is not there")
        return dict(conf)

    @task
    def hold(conf: dict[str, Any]) -> None:
        while "hold" in conf and Path(conf["hold"]).exists():
            time.sleep(0.1)

    hold(echo())
