"""What `databricks-sql-connector` asks over Thrift, answered with rows in Arrow's format."""

from __future__ import annotations

from uuid import UUID

import pyarrow
from databricks.sql.thrift_api.TCLIService import TCLIService, ttypes
from thrift.protocol.TBinaryProtocol import TBinaryProtocol
from thrift.transport.TTransport import TMemoryBuffer

from airflow_backfill_provider.demo.local_databricks.queries import Queries, Query, State

_POLL_SECONDS = 5.0
_SUCCESS = ttypes.TStatus(statusCode=ttypes.TStatusCode.SUCCESS_STATUS)
_STATES = {
    State.RUNNING: ttypes.TOperationState.RUNNING_STATE,
    State.SUCCEEDED: ttypes.TOperationState.FINISHED_STATE,
    State.FAILED: ttypes.TOperationState.ERROR_STATE,
    State.CANCELED: ttypes.TOperationState.CANCELED_STATE,
}
_TYPES = {
    pyarrow.bool_(): ttypes.TTypeId.BOOLEAN_TYPE,
    pyarrow.int8(): ttypes.TTypeId.TINYINT_TYPE,
    pyarrow.int16(): ttypes.TTypeId.SMALLINT_TYPE,
    pyarrow.int32(): ttypes.TTypeId.INT_TYPE,
    pyarrow.int64(): ttypes.TTypeId.BIGINT_TYPE,
    pyarrow.float32(): ttypes.TTypeId.FLOAT_TYPE,
    pyarrow.float64(): ttypes.TTypeId.DOUBLE_TYPE,
    pyarrow.date32(): ttypes.TTypeId.DATE_TYPE,
    pyarrow.binary(): ttypes.TTypeId.BINARY_TYPE,
    pyarrow.null(): ttypes.TTypeId.NULL_TYPE,
}


class Service:
    """The calls of the connector that a backfill makes; any other is refused by the generated code."""

    def __init__(self, queries: Queries) -> None:
        self._queries = queries
        self._processor = TCLIService.Processor(self)

    def answer(self, request: bytes) -> bytes:
        """One call and its answer, in Thrift's binary protocol."""
        sent = TMemoryBuffer()
        self._processor.process(TBinaryProtocol(TMemoryBuffer(request)), TBinaryProtocol(sent))
        return bytes(sent.getvalue())

    def OpenSession(self, request: ttypes.TOpenSessionReq) -> ttypes.TOpenSessionResp:
        try:
            session = self._queries.open(request.configuration or {})
        except Exception as error:
            return ttypes.TOpenSessionResp(status=_failure(str(error)))
        return ttypes.TOpenSessionResp(
            status=_SUCCESS,
            serverProtocolVersion=ttypes.TProtocolVersion.SPARK_CLI_SERVICE_PROTOCOL_V7,
            sessionHandle=ttypes.TSessionHandle(ttypes.THandleIdentifier(session.id.bytes, b"")),
            canUseMultipleCatalogs=True,
        )

    def CloseSession(self, request: ttypes.TCloseSessionReq) -> ttypes.TCloseSessionResp:
        self._queries.close(request.sessionHandle.sessionId.guid)
        return ttypes.TCloseSessionResp(status=_SUCCESS)

    def ExecuteStatement(self, request: ttypes.TExecuteStatementReq) -> ttypes.TExecuteStatementResp:
        try:
            session = self._queries.session(request.sessionHandle.sessionId.guid)
        except KeyError:
            return ttypes.TExecuteStatementResp(status=_no_session(request.sessionHandle))
        query = self._queries.submit(session, request.statement)
        handle, results = self._begun(query, request.getDirectResults)
        return ttypes.TExecuteStatementResp(status=_SUCCESS, operationHandle=handle, directResults=results)

    def GetColumns(self, request: ttypes.TGetColumnsReq) -> ttypes.TGetColumnsResp:
        schema, table = (
            name.replace("\\_", "_").replace("\\%", "%") for name in (request.schemaName, request.tableName)
        )
        try:
            session = self._queries.session(request.sessionHandle.sessionId.guid)
        except KeyError:
            return ttypes.TGetColumnsResp(status=_no_session(request.sessionHandle))
        query = self._queries.columns(session, schema, table)
        handle, results = self._begun(query, request.getDirectResults)
        return ttypes.TGetColumnsResp(status=_SUCCESS, operationHandle=handle, directResults=results)

    def _begun(
        self, query: Query, direct: ttypes.TSparkGetDirectResults | None
    ) -> tuple[ttypes.TOperationHandle, ttypes.TSparkDirectResults | None]:
        """Its handle and, when it is over soon and the client wants them, all of its rows."""
        handle = ttypes.TOperationHandle(
            ttypes.THandleIdentifier(UUID(query.id).bytes, b""),
            ttypes.TOperationType.EXECUTE_STATEMENT,
            hasResultSet=True,
        )
        if not direct or query.wait(_POLL_SECONDS) not in (State.SUCCEEDED, State.FAILED):
            return handle, None
        results = ttypes.TSparkDirectResults(operationStatus=_status(query))
        if query.state is State.SUCCEEDED:
            results.resultSetMetadata, results.resultSet = _metadata(query.rows), _page(query)
            results.closeOperation = ttypes.TCloseOperationResp(status=_SUCCESS)
        self._queries.forget(query.id)
        return handle, results

    def GetOperationStatus(self, request: ttypes.TGetOperationStatusReq) -> ttypes.TGetOperationStatusResp:
        query = self._find(request.operationHandle)
        query.wait(_POLL_SECONDS)
        return _status(query)

    def GetResultSetMetadata(self, request: ttypes.TGetResultSetMetadataReq) -> ttypes.TGetResultSetMetadataResp:
        return _metadata(self._find(request.operationHandle).rows)

    def FetchResults(self, request: ttypes.TFetchResultsReq) -> ttypes.TFetchResultsResp:
        return _page(self._find(request.operationHandle))

    def CancelOperation(self, request: ttypes.TCancelOperationReq) -> ttypes.TCancelOperationResp:
        self._find(request.operationHandle).cancel()
        return ttypes.TCancelOperationResp(status=_SUCCESS)

    def CloseOperation(self, request: ttypes.TCloseOperationReq) -> ttypes.TCloseOperationResp:
        self._queries.forget(_id(request.operationHandle))
        return ttypes.TCloseOperationResp(status=_SUCCESS)

    def _find(self, handle: ttypes.TOperationHandle) -> Query:
        return self._queries.find(_id(handle))


def _id(handle: ttypes.TOperationHandle) -> str:
    return str(UUID(bytes=handle.operationId.guid))


def _failure(message: str) -> ttypes.TStatus:
    return ttypes.TStatus(statusCode=ttypes.TStatusCode.ERROR_STATUS, errorMessage=message)


def _no_session(handle: ttypes.TSessionHandle) -> ttypes.TStatus:
    """As Hive's server, whose protocol it is, says it."""
    return ttypes.TStatus(
        statusCode=ttypes.TStatusCode.INVALID_HANDLE_STATUS,
        errorMessage=f"Invalid SessionHandle: SessionHandle [{UUID(bytes=handle.sessionId.guid)}]",
    )


def _status(query: Query) -> ttypes.TGetOperationStatusResp:
    return ttypes.TGetOperationStatusResp(
        status=_SUCCESS,
        operationState=_STATES[query.state],
        errorMessage=query.error or None,
        displayMessage=query.error or None,
    )


def _metadata(rows: pyarrow.Table) -> ttypes.TGetResultSetMetadataResp:
    columns = [
        ttypes.TColumnDesc(field.name, ttypes.TTypeDesc([ttypes.TTypeEntry(_entry(field.type))]), position)
        for position, field in enumerate(rows.schema, start=1)
    ]
    return ttypes.TGetResultSetMetadataResp(
        status=_SUCCESS,
        schema=ttypes.TTableSchema(columns),
        resultFormat=ttypes.TSparkRowSetType.ARROW_BASED_SET,
        lz4Compressed=False,
        arrowSchema=rows.schema.serialize().to_pybytes(),
        isStagingOperation=False,
    )


def _entry(kind: pyarrow.DataType) -> ttypes.TPrimitiveTypeEntry:
    if pyarrow.types.is_decimal(kind):
        qualifiers = {
            name: ttypes.TTypeQualifierValue(i32Value=value)
            for name, value in {"precision": kind.precision, "scale": kind.scale}.items()
        }
        return ttypes.TPrimitiveTypeEntry(ttypes.TTypeId.DECIMAL_TYPE, ttypes.TTypeQualifiers(qualifiers))
    if pyarrow.types.is_timestamp(kind):
        return ttypes.TPrimitiveTypeEntry(ttypes.TTypeId.TIMESTAMP_TYPE)
    return ttypes.TPrimitiveTypeEntry(_TYPES.get(kind, ttypes.TTypeId.STRING_TYPE))


def _page(query: Query) -> ttypes.TFetchResultsResp:
    """All rows at once: a test reads no more than a few."""
    batches = [
        ttypes.TSparkArrowBatch(batch.serialize().to_pybytes(), batch.num_rows)
        for batch in query.rows.combine_chunks().to_batches()
    ]
    return ttypes.TFetchResultsResp(
        status=_SUCCESS,
        hasMoreRows=False,
        results=ttypes.TRowSet(startRowOffset=0, rows=[], arrowBatches=batches),
        resultSetMetadata=_metadata(query.rows),
    )
