SELECT order_id, order_date, CASE WHEN refunded THEN NULL ELSE amount END AS amount
FROM raw.orders
WHERE order_date >= DATE '{{ data_interval_start | ds }}' AND order_date < DATE '{{ data_interval_end | ds }}'
