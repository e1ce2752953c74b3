"""Connection types of Airflow that no other provider registers."""
