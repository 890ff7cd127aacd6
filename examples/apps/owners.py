"""One service for two tenants: each finds its own sessions only, and a user continues the one that was used last."""

from tenuto import Session, SessionRuntime, Sessions, Turn, program
from tenuto.messages import text_of


@program
async def chat(turn: Turn) -> None:
    turn.append(f"{turn.tenant}, {turn.user_id}: {turn.text}")


runtime = SessionRuntime("sqlite:///tenants.db", chat)


async def last_chat(sessions: Sessions, user: str) -> Session[None]:
    page = await sessions.list(user_id=user, limit=100)
    if not page:
        return await sessions.create(chat, user_id=user)
    return sessions.session(max(page, key=lambda each: each.updated_at).session_id, chat)


async def say(tenant: str, user: str, text: str, key: str) -> str:
    session = await last_chat(runtime.for_tenant(tenant), user)
    return (await session.send(text, key, when_busy="queue")).text


async def exported(tenant: str) -> dict[str, list[str]]:
    sessions, after, found = runtime.for_tenant(tenant), None, dict[str, list[str]]()
    while True:
        page = await sessions.list(limit=100, after=after)
        for each in page:
            said = (await sessions.get(each.session_id)).messages
            found[each.session_id] = [text_of(message) for message in said]
        if (after := page.next) is None:
            return found
