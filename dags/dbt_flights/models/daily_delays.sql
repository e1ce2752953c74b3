{{ config(
    materialized='incremental',
    incremental_strategy='microbatch',
    event_time='flight_date',
    batch_size='day',
    begin='2013-01-01'
) }}

select
    flight_date,
    carrier,
    count(*) as flights,
    count(dep_delay) as departed,
    sum(dep_delay) filter (where dep_delay > 0) as minutes_late
from {{ source('raw', 'flights') }}
group by flight_date, carrier
