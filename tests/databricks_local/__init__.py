"""The local Databricks SQL warehouse as the tests share it: one for each of their processes, which ends with it.

::

    client    connections by the real client
    bounds    what no statement of the product may be
    tables    the tables of the shared Spark, emptied fast
    fake      a connection whose answers a test makes up
    shop      a published table there, for tests of the adapter alone
"""
