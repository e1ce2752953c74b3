"""A Databricks SQL warehouse of the tests' own: one local Spark with Delta Lake, behind the protocols that the real client speaks.

It binds loopback alone, runs in a process of its own and ends with the process that started it. Nothing of it is a
mock of the engine: every statement is a commit, or a read, of real Delta tables.

::

    start     starts the process and stops it by its pid; the Airflow connection that leads to it
    serve     the process: HTTP on one port
    thrift    what `databricks-sql-connector` asks
    rest      what the SQL Statement Execution API is asked
    queries   statements that run, their results, and how they are cancelled
    rows      what a statement returned
    spark     the session's settings
    client    connections for the tests, by the real client
    tables    the tables of the shared Spark, emptied fast
"""
