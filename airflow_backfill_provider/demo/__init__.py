"""The main job on real data, end to end, through a real local Airflow: ``python -m airflow_backfill_provider.demo``."""
