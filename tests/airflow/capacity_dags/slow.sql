-- takes_its_time() is true, a second later.
SELECT order_id, order_date, amount + 1 AS amount
FROM raw.orders
WHERE order_date >= DATE '{{ data_interval_start | ds }}' AND order_date < DATE '{{ data_interval_end | ds }}'
  AND takes_its_time(order_id)
