-- One row per carrier and calendar month in New York. A mean over flights that never arrived would be a guess, so it is
-- taken over those that did, and is NULL when there is none.
SELECT
    CAST(date_trunc('month', flight_date) AS DATE) AS month,
    carrier,
    CAST(count(*) AS INTEGER) AS flights,
    CAST(count(*) FILTER (WHERE dep_time IS NULL) AS INTEGER) AS cancelled,
    CAST(count(arr_delay) AS INTEGER) AS arrived,
    round(avg(arr_delay), 2) AS mean_arrival_delay_minutes
FROM raw.flights
WHERE flight_date >= DATE '{{ data_interval_start.in_timezone('America/New_York') | ds }}'
  AND flight_date < DATE '{{ data_interval_end.in_timezone('America/New_York') | ds }}'
GROUP BY ALL
