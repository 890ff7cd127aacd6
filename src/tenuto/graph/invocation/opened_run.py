"""An invocation that is about to run, and the journal of one that begins."""

from collections.abc import Mapping
from typing import Any, NamedTuple

from tenuto.codec import JSON
from tenuto.graph.checkpoint.cursor import ResumePoints
from tenuto.graph.checkpoint.fan_out_progress import FanOutProgress
from tenuto.graph.checkpoint.graph_journal import GraphJournal
from tenuto.graph.checkpoint.journal_writer import JournalWriter
from tenuto.graph.checkpoint.ledger import Ledger
from tenuto.graph.engine.graph_plan import GraphPlan
from tenuto.graph.engine.scope import Scope
from tenuto.graph.session.foreign_session import ForeignSession
from tenuto.graph.session.own_session import OwnSession


class OpenedRun(NamedTuple):
    """An invocation about to run: its identities, its journal, and the state it starts from, if that is decided.

    `existed` says whether there was a session to load; `resumed_from` is the trace of the invocation it resumes.
    """

    scope: Scope
    journal: GraphJournal | None = None
    entry: Any = None
    existed: bool | None = None
    resumed_from: str | None = None


def fresh_journal(
    graph: GraphPlan[Any],
    writer: JournalWriter | None,
    session: OwnSession | ForeignSession | None,
    beside: Mapping[str, JSON] | None = None,
) -> GraphJournal:
    """Return the journal of a run that begins; `beside` is added to the cursor of its checkpoints."""
    ledger = Ledger(names=session.plan.names if isinstance(session, OwnSession) else {})
    return GraphJournal(
        writer=writer,
        graph=graph.name,
        schema_version=graph.kind.schema_version,
        every_node=graph.checkpoints,
        session=session,
        progress=FanOutProgress(batch=graph.fan_out_batch),
        ledger=ledger,
        points=ResumePoints(ledger),
        beside=beside or {},
    )
