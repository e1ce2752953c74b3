SELECT order_id, order_date, amount FROM analytics.orders
WHERE order_date >= DATE '{{ data_interval_start | ds }}' AND order_date < DATE '{{ data_interval_end | ds }}'
