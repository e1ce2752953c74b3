"""ApprovalGateOperator: wait for a person where the spec wants one to look."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import TYPE_CHECKING, Any

from airflow.providers.standard.operators.hitl import ApprovalOperator
from airflow.sdk import Param
from airflow.sdk.definitions.context import Context
from airflow.sdk.exceptions import AirflowFailException, AirflowSkipException, TaskAwaitingInput
from airflow.sdk.timezone import utcnow

from airflow_backfill_provider.operators.base import BackfillOperator, actor
from airflow_backfill_provider.spec.request import Mode

if TYPE_CHECKING:
    from airflow_backfill_provider.ledger.records import Question
    from airflow_backfill_provider.steps.work import Work

_UNTIL_THE_SPEC_IS_READ = timedelta(days=2)


class ApprovalGateOperator(BackfillOperator, ApprovalOperator):
    """Ask a person, and go on only with a yes to exactly what was shown; a no, or no answer in time, fails the task.

    Airflow shows the question under *Required Actions*; the task waits as ``awaiting_input``, without a worker, a slot of
    a pool, or the triggerer. The answer stands in the ledger: a cleared task does not ask again about what was approved. It
    passes at once where the spec wants nobody to look, and is skipped when there is nothing to run, or, before the publish,
    when the mode says that this run does not publish.

    A throttle holds no question back: people may answer while the warehouse belongs to others.

    :param gate: ``plan``, before anything is staged; ``review``, after the trial; ``publish``, with everything validated.
    """

    template_fields = BackfillOperator.template_fields
    ui_color = "#f5dce9"

    def __init__(self, *, gate: str, **kwargs: Any) -> None:
        note = Param("", type="string", maxLength=2000, title="Note", description="kept with the answer")
        asked: dict[str, Any] = {"response_timeout": _UNTIL_THE_SPEC_IS_READ, "params": {"note": note}}
        super().__init__(subject=f"May the backfill go on ({gate})?", **asked | kwargs)
        self.gate = gate

    def execute(self, context: Context) -> Any:
        from airflow_backfill_provider.ledger.records import Gate
        from airflow_backfill_provider.steps.asking import ask

        said, gate, mode = self.scoped(context) or {}, Gate(self.gate), self.mode(context)
        with self.work(context) as work:
            if mode is Mode.PLAN or work.ledger.find_backfill(work.backfill_id) is None:
                raise AirflowSkipException("Nothing was planned to run: a preview, or no partition in the range.")
            if gate is Gate.PUBLISH and mode is Mode.STAGE:
                raise AirflowSkipException("mode is stage; a run with the same backfill_id and mode publish asks")
            waive = str(said.get("waive_approval") or "")
            question = ask(work, gate, actor(context), waive=waive)
            if question is None:
                return None
            self._show(context, work, question)
        for notifier in self.notifiers:
            notifier(context)
        self._wait(question.content, question.revision, utcnow() + self.spec.approval.timeout)

    def answered(
        self, context: Context, event: dict[str, Any], content: str, revision: int, deadline: str
    ) -> dict[str, Any]:
        """Record the answer; go on, fail, or ask again when it was not theirs to give."""
        from airflow_backfill_provider.steps.asking import (
            Person,
            answer,
            duration,
            give_up_waiting,
            is_approved,
            reopened,
        )

        with self.work(context) as work:
            question = reopened(work, self.gate, content, revision)
            user = event.get("responded_by_user")
            if "error" in event or user is None:
                give_up_waiting(work, question, duration(self.spec.approval.timeout))
            else:
                note = str((event.get("params_input") or {}).get("note") or "")[:2_000]
                person = Person(str(user["id"]), str(user["name"]))
                objection = answer(work, question, person, yes=event["chosen_options"] == [self.APPROVE], note=note)
                if objection:
                    self.log.warning("An approval does not count: %s. Asking again.", objection)
                    self._show(context, work, question)
                    self._wait(content, revision, datetime.fromisoformat(deadline))
            if not is_approved(work, question):
                raise AirflowFailException(f"The {self.gate} was not approved. Clear this task to ask again.")
            work.stop_or_ask()
        return {"gate": self.gate, "content": content}

    def _wait(self, content: str, revision: int, deadline: datetime) -> None:
        raise TaskAwaitingInput(
            method_name=self.answered.__name__,
            kwargs={"content": content, "revision": revision, "deadline": deadline.isoformat()},
            timeout=max(deadline - utcnow(), timedelta(seconds=1)),
        )

    def _show(self, context: Context, work: Work, question: Question) -> None:
        """Put the question before people.

        :raises AirflowFailException: Airflow still shows what an earlier attempt asked, since it never changes a question
            that a task has asked once; nobody must answer one thing and be heard on another.
        """
        from airflow.sdk.execution_time.comms import CreateHITLDetailPayload
        from airflow.sdk.execution_time.task_runner import SUPERVISOR_COMMS

        from airflow_backfill_provider.steps.asking import fail_waiting, subject_of

        self.subject, self.body = subject_of(work, question), question.shown
        shown = SUPERVISOR_COMMS.send(
            CreateHITLDetailPayload(
                ti_id=context["task_instance"].id,
                options=self.options,
                subject=self.subject,
                body=self.body,
                defaults=None,
                multiple=False,
                params=self.serialized_params,
                # Airflow compares an assigned user with the id alone, which of many auth managers is a number; an approver may
                # be written as a name, in any case, and the answer says both. So the ledger decides whose yes counts.
                assigned_users=[],
            )
        )
        if getattr(shown, "subject", None) != self.subject:
            reason = "Airflow still shows the question of an earlier plan"
            fail_waiting(work, reason)
            raise AirflowFailException(
                f"{reason}: a task that asked once cannot ask about anything else. Ask in a new run: airflow dags trigger "
                f"""{context["dag_run"].dag_id} --conf '{{"backfill_id": "{work.backfill_id}"}}'; staged work is reused."""
            )
