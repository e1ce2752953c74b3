"""When a count of failing rows counts as a warning or an error: dbt's ``warn_if`` and ``error_if``."""

from __future__ import annotations

import operator
import re
from dataclasses import dataclass
from decimal import Decimal

_WRITTEN = re.compile(r"\A\s*(>=|<=|!=|<>|==|=|>|<)\s*([0-9]+(?:\.[0-9]+)?)\s*(%?)\s*\Z")
_SIGNS = {
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "!=": operator.ne,
    "<>": operator.ne,
    "=": operator.eq,
    "==": operator.eq,
}


@dataclass(frozen=True)
class Threshold:
    """A condition on the number of failing rows, or on their percentage of the rows looked at."""

    sign: str
    value: Decimal
    percent: bool

    @classmethod
    def parse(cls, text: str) -> Threshold:
        """``"> 10"``, ``"!=0"``, ``">= 2.5%"``.

        :raises ValueError: it is none of these.
        """
        if not (match := _WRITTEN.match(text)):
            raise ValueError(
                f"{text!r} is not a condition; write a sign and a number of rows, such as '> 10', '!= 0' or '>= 2.5%'"
            )
        return cls(match[1], Decimal(match[2]), bool(match[3]))

    def met(self, failures: int, rows: int) -> bool:
        """Whether so many failures among so many rows meet it; of no rows, none is 0 %."""
        compare = _SIGNS[self.sign]
        if not self.percent:
            return bool(compare(failures, self.value))
        return bool(compare(100 * failures, self.value * rows) if rows else compare(0, self.value))

    def __str__(self) -> str:
        return f"{self.sign} {self.value}{'%' if self.percent else ''}"


NOT_ZERO = Threshold("!=", Decimal(0), percent=False)
"""What is meant when nothing is written."""
