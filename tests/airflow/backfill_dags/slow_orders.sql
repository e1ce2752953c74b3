-- raw.slowness says how many numbers each partition has to add up first.
SELECT order_id, order_date, CASE WHEN refunded THEN NULL ELSE amount END AS amount
FROM raw.orders
WHERE order_date >= DATE '{{ data_interval_start | ds }}' AND order_date < DATE '{{ data_interval_end | ds }}'
  AND (SELECT sum(sqrt(i)) FROM range((SELECT max(numbers) FROM raw.slowness)) AS t (i)) IS NOT NULL
