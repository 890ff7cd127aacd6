"""The team's chief, who asks two lawyers side by side and one of them again."""

from tenuto import SessionRuntime


async def test_children_are_asked_side_by_side_and_one_of_them_again() -> None:
    from team import Opinion, chief, legal

    async with SessionRuntime("memory://", [chief, legal]) as runtime:
        session = await runtime.create(chief, session_id="chief")
        asked = await session.send("May we?")
        assert [wait.kind for wait in asked.waits] == ["child", "child"]
        await runtime.drain()
        runs = await session.runs()
        assert [run.status for run in runs][-1] == "suspended"
        assert (runs[0].status, runs[0].run.outcome) == ("completed", {"output": 0.2})
        children = await runtime.list(parent="chief")
        said = [[each["content"] for each in (await runtime.get(child.session_id)).messages] for child in children]
        assert sorted(said) == [["May we?"], ["May we?", "Are you sure?"]]
        found = legal.reads_output({"risk": 0.2})
        assert found == Opinion(risk=0.2)
