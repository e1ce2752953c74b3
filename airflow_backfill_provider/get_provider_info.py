"""What Airflow asks of a provider."""

from __future__ import annotations

from typing import Any


def get_provider_info() -> dict[str, Any]:
    """Name, commands, connection types and configuration, in the shape of Airflow's provider schema."""
    package = "airflow_backfill_provider"
    return {
        "package-name": "airflow-backfill-provider",
        "name": "Safe Backfill",
        "description": "Rebuild published history without ever exposing a half-written result.",
        "cli": [f"{package}.cli.get_cli_commands"],
        "connection-types": [
            {
                "connection-type": "delta",
                "hook-class-name": f"{package}.hooks.delta.DeltaHook",
                "hook-name": "Delta Lake on a path",
                "ui-field-behaviour": {
                    "hidden-fields": ["schema", "login", "password", "port"],
                    "relabeling": {"host": "Folder or URL of the tables"},
                    "placeholders": {
                        "host": "/data/warehouse, or s3://bucket/warehouse",
                        "extra": '{"storage_options": {"AWS_REGION": "eu-west-1"}}',
                    },
                },
            }
        ],
        "config": {
            "safe_backfill": {
                "description": "Settings of the Safe Backfill provider.",
                "options": {
                    "ledger_conn_id": {
                        "description": "Airflow connection of the ledger's database (type sqlite or postgres).",
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": None,
                        "default": "safe_backfill_ledger",
                    },
                    "installation": {
                        "description": "A name for this Airflow installation. Where several share a ledger each needs one of its own, the "
                        "same on every host, as their runs have the same ids. Set it, or change it, while no backfill and no guarded run "
                        "is at work: what runs keeps the ids that it began with.",
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": "east",
                        "default": "",
                    },
                    "pool_patience": {
                        "description": "Seconds that a run waits for its first slot in the pool before it fails.",
                        "version_added": "0.1.0",
                        "type": "float",
                        "example": None,
                        "default": "45",
                    },
                    "reports_folder": {
                        "description": "Where the files of each backfill's report go: an absolute path or a URL that Airflow's "
                        "object storage knows, such as s3://aws_default@bucket/backfills. With workers on several hosts "
                        "it must be shared; nothing but people reads what is in it.",
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": "s3://aws_default@bucket/backfills",
                        "default": "{AIRFLOW_HOME}/safe_backfill_reports",
                    },
                    "policy": {
                        "description": "strict refuses a plan that leaves one of the five questions to a default.",
                        "version_added": "0.1.0",
                        "type": "string",
                        "example": "strict",
                        "default": "default",
                    },
                },
            }
        },
    }
