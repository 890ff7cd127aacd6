"""The adapter's checks of sessions: what happens outside a run, and without a store."""

from pathlib import Path

from tests.conformance.selftest.trial import report_of, trial


async def test_an_error_that_a_registration_raises_is_not_passed_over(tmp_path: Path) -> None:
    text = trial("sessions/ambiguous").text
    text = text[: text.index("expected_error")]
    assert any("chain_ambiguous" in problem for problem in (await report_of(text, tmp_path)).problems)


async def test_an_id_without_a_store_loads_and_saves_nothing(tmp_path: Path) -> None:
    text = trial("sessions/alone").text.replace("session_store: in_memory", "session_id: s")
    assert (await report_of(text.split("  store_untouched")[0], tmp_path)).problems == []
