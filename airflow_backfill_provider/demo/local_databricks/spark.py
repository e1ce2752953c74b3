"""One Spark session with Delta Lake, set up to answer small statements fast, and the tables that a folder holds."""

from __future__ import annotations

import shutil
from pathlib import Path

from pyspark.sql import SparkSession

from airflow_backfill_provider.demo.local_databricks.server import TABLES

_SCHEMA = ".db"
"""How Spark ends the name of a schema's folder."""
_SETTINGS = {
    "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
    "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
    "spark.sql.catalogImplementation": "in-memory",
    # As on Databricks, where every table is a Delta table and arithmetic never wraps around.
    "spark.sql.sources.default": "delta",
    "spark.sql.ansi.enabled": "true",
    "spark.sql.session.timeZone": "UTC",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.memory": "2g",
    "spark.default.parallelism": "1",
    "spark.sql.shuffle.partitions": "1",
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # No checksum beside every file.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
    "spark.sql.adaptive.enabled": "false",
    "spark.databricks.delta.snapshotPartitions": "1",
    # The files of a version are read from its checksum instead of by a query over the log.
    "spark.databricks.delta.allFilesInCrc.enabled": "true",
    "spark.databricks.delta.allFilesInCrc.verificationMode.enabled": "false",
    "spark.databricks.delta.allFilesInCrc.verificationMode.forceOnNonUTC.enabled": "false",
    # Nobody looks at a plan afterwards.
    "spark.sql.maxPlanStringLength": "100",
    "spark.sql.debug.maxToStringFields": "2",
    "spark.sql.ui.retainedExecutions": "1",
    "spark.ui.retainedJobs": "1",
    "spark.ui.retainedStages": "1",
    "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:ReservedCodeCacheSize=256m "
    "-XX:+UseSerialGC -XX:-UsePerfData -Xms512m -Xss4m",
}


_SETTINGS_FOR_TESTS = {
    # Tables have a handful of rows: one task is enough for anything, no code is worth compiling, and each file is read anyway.
    "spark.sql.files.minPartitionNum": "1",
    "spark.sql.files.openCostInBytes": "0",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.databricks.delta.stats.collect": "false",
    "spark.databricks.delta.stats.skipping": "false",
}


def start(jars: list[Path], folder: Path, *, for_tests: bool) -> SparkSession:
    """The session, whose tables are files below the folder: those that are there already, too.

    :param for_tests: no table will have more than a few rows.
    """
    builder = SparkSession.builder.master("local[4]").appName("local_databricks")
    for name, value in (_SETTINGS | (_SETTINGS_FOR_TESTS if for_tests else {})).items():
        builder = builder.config(name, value)
    # With spark.jars, the class loader of the session's tasks is another one than the catalog's.
    classes = ":".join(map(str, [_little_hadoop(folder), *jars]))
    builder = builder.config("spark.driver.extraClassPath", classes)
    tables, spill = folder / TABLES, folder / "spill"
    shutil.rmtree(spill, ignore_errors=True)
    builder = builder.config("spark.sql.warehouse.dir", str(tables))
    session = builder.config("spark.local.dir", str(spill)).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    for schema in sorted(tables.glob(f"*{_SCHEMA}")):
        _take_up(session, schema)
    return session


def _take_up(session: SparkSession, schema: Path) -> None:
    """Put the tables of a folder into the catalog, which is in memory and so forgot them."""
    name = schema.name.removesuffix(_SCHEMA)
    session.sql(f"CREATE SCHEMA IF NOT EXISTS `{name}`")
    for table in sorted(log.parent for log in schema.glob("*/_delta_log")):
        session.sql(f"CREATE TABLE `{name}`.`{table.name}` USING delta LOCATION '{table}'")
        _manage(session, name, table.name)


def _manage(session: SparkSession, schema: str, table: str) -> None:
    """Make the table one whose files are dropped with it: a table that is created where files are is never that."""
    java = session.sparkContext._jvm
    catalog = session._jsparkSession.sessionState().catalog()
    types = java.org.apache.spark.sql.catalyst.catalog.CatalogTableType
    found = catalog.getTableMetadata(java.org.apache.spark.sql.catalyst.TableIdentifier(table, java.scala.Some(schema)))
    parts = [getattr(found, f"copy$default${number}")() for number in range(1, found.productArity() + 1)]
    parts[1] = types.MANAGED()
    catalog.alterTable(found.copy(*parts))


def _little_hadoop(folder: Path) -> Path:
    """A folder of Hadoop's settings that hide its own, of which each task is sent all: half of what a small task costs."""
    settings = folder / "hadoop"
    settings.mkdir(exist_ok=True)
    for name in ("core", "hdfs", "mapred", "yarn"):
        (settings / f"{name}-default.xml").write_text("<configuration/>")
    return settings
