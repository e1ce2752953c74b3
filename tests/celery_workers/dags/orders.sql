-- A worker's sessions have its name, and a partition takes long enough for the other worker to take the next one.
SELECT order_id, order_date, amount + 1 AS amount, current_setting('application_name') AS computed_by
FROM raw.orders
WHERE order_date >= DATE '{{ data_interval_start | ds }}' AND order_date < DATE '{{ data_interval_end | ds }}'
  AND (SELECT pg_sleep(2) IS NOT NULL)
