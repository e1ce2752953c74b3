"""One Spark session with Delta Lake, set up to answer small statements fast."""

from __future__ import annotations

from pathlib import Path

from pyspark.sql import SparkSession

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
    "spark.ui.enabled": "false",
    "spark.ui.showConsoleProgress": "false",
    # Tables have a handful of rows: one task is enough for anything, and no code is worth compiling.
    "spark.sql.shuffle.partitions": "1",
    "spark.default.parallelism": "1",
    "spark.sql.files.minPartitionNum": "1",
    "spark.sql.files.openCostInBytes": "0",
    # No checksum beside every file.
    "spark.hadoop.fs.file.impl": "org.apache.hadoop.fs.RawLocalFileSystem",
    "spark.hadoop.fs.AbstractFileSystem.file.impl": "org.apache.hadoop.fs.local.RawLocalFs",
    "spark.sql.codegen.wholeStage": "false",
    "spark.sql.codegen.factoryMode": "NO_CODEGEN",
    "spark.sql.adaptive.enabled": "false",
    "spark.databricks.delta.snapshotPartitions": "1",
    # Each file of these tables is read anyway.
    "spark.databricks.delta.stats.collect": "false",
    "spark.databricks.delta.stats.skipping": "false",
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


def start(jars: list[Path], folder: Path) -> SparkSession:
    """The session, whose tables are files below the folder."""
    builder = SparkSession.builder.master("local[4]").appName("databricks_local")
    for name, value in _SETTINGS.items():
        builder = builder.config(name, value)
    # With spark.jars, the class loader of the session's tasks is another one than the catalog's.
    classes = ":".join(map(str, [_little_hadoop(folder), *jars]))
    builder = builder.config("spark.driver.extraClassPath", classes)
    builder = builder.config("spark.sql.warehouse.dir", str(folder / "tables"))
    session = builder.config("spark.local.dir", str(folder / "spill")).getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    return session


def _little_hadoop(folder: Path) -> Path:
    """A folder of Hadoop's settings that hide its own, of which each task is sent all: half of what a small task costs."""
    settings = folder / "hadoop"
    settings.mkdir()
    for name in ("core", "hdfs", "mapred", "yarn"):
        (settings / f"{name}-default.xml").write_text("<configuration/>")
    return settings
