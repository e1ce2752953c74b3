"""The team's own dbt, in a virtual environment of its own; ``.ci/need-dbt`` makes it."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

import pytest

_HERE = Path(__file__).parents[1] / ".venv-dbt" / "bin" / "dbt"


def executable() -> str | None:
    """The path of dbt; None where there is none."""
    return shutil.which(os.environ.get("BACKFILL_DBT") or (_HERE if _HERE.exists() else "dbt"))


def on_path() -> str:
    """``PATH`` with it first."""
    return f"{Path(executable() or '').parent}{os.pathsep}{os.environ['PATH']}"


needed = pytest.mark.skipif(executable() is None, reason="dbt is not installed: run .ci/need-dbt")
