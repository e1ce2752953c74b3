"""Which answers of an API refuse what was asked, so that asking again would be refused again."""

from __future__ import annotations

from http import HTTPStatus

REFUSALS = frozenset(
    {HTTPStatus.BAD_REQUEST, HTTPStatus.NOT_FOUND, HTTPStatus.CONFLICT, HTTPStatus.UNPROCESSABLE_ENTITY}
)
"""The others are about the way there: a login that has run out, a limit, a server that is being restarted."""
