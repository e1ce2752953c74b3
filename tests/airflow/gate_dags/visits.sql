SELECT visit_id, visit_date, CASE WHEN refunded THEN NULL ELSE amount END AS amount
FROM raw.visits
WHERE visit_date >= DATE '{{ data_interval_start | ds }}' AND visit_date < DATE '{{ data_interval_end | ds }}'
