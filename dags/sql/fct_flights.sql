-- One row per flight that was scheduled to leave New York. An arrival that never happened has no delay: unknown is
-- not zero, so the delay and the verdict "on time" stay NULL for it.
SELECT
    flight_date,
    carrier,
    flight,
    origin,
    dest,
    tailnum,
    make_timestamp(year, month, day, hour, minute, 0) AS scheduled_departure,
    dep_delay AS departure_delay_minutes,
    arr_delay AS arrival_delay_minutes,
    distance AS distance_miles,
    dep_time IS NULL AS cancelled,
    arr_delay <= 15 AS on_time
FROM raw.flights
WHERE flight_date >= DATE '{{ data_interval_start | ds }}'
  AND flight_date < DATE '{{ data_interval_end | ds }}'
