-- raw.passes() returns once the gate is open.
SELECT order_id, order_date, amount + 1 AS amount
FROM raw.orders
WHERE order_date >= DATE '{{ data_interval_start | ds }}' AND order_date < DATE '{{ data_interval_end | ds }}'
  AND (SELECT raw.passes('{{ params.name }}'))
