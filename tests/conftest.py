"""How the tests are spread over processes: those that need Spark share one, and begin at once; a file keeps together."""

from __future__ import annotations

import pytest

from airflow_backfill_provider.demo.local_databricks.server import missing


def pytest_report_header(config: pytest.Config) -> str | None:
    if reason := missing():
        return f"DATABRICKS SQL IS NOT TESTED: {reason}"
    return "Databricks SQL: `make test-databricks` tests it" if "not spark" in config.option.markexpr else None


@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    for item in items:
        parameters = item.callspec.params.values() if hasattr(item, "callspec") else ()
        if any(getattr(parameter, "name", "") == "databricks" for parameter in parameters):
            item.add_marker(pytest.mark.spark)
        spark = item.get_closest_marker("spark") is not None
        item.add_marker(pytest.mark.xdist_group("spark" if spark else str(item.path)))
    items.sort(key=lambda item: item.get_closest_marker("spark") is None)
