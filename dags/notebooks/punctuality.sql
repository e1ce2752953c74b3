-- Databricks notebook source
-- How punctual each airport was on each day. A run is told its day and where the rows go; OVERWRITE, so that a retry within
-- the run leaves the rows once.
INSERT OVERWRITE IDENTIFIER(:staging_table) BY NAME
SELECT flight_date, origin, count(*) AS flights, count_if(arr_delay <= 15) AS on_time
FROM raw.flights
WHERE flight_date >= CAST(left(:partition_start, 10) AS DATE)
  AND flight_date < CAST(left(:partition_end, 10) AS DATE)
GROUP BY flight_date, origin
