"""A Databricks SQL warehouse for the demo and the tests: one local Spark with Delta Lake, behind what the real client speaks.

It binds loopback alone and runs in a process of its own. Nothing of it is a mock of the engine: every statement is a
commit, or a read, of real Delta tables.

::

    server    starts the process and stops it by its id; the Airflow connection that leads to it
    serve     the process: HTTP on one port
    thrift    what `databricks-sql-connector` asks
    rest      what the SQL Statement Execution API and the Jobs API are asked
    queries   statements that run, their results, and how they are cancelled
    jobs      notebooks that run, and how they are cancelled
    definitions    tables as `SHOW CREATE TABLE` shows them
    rows      what a statement returned
    spark     the session's settings, and the tables that a folder holds
"""
