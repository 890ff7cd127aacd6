from shop import runtime, support
from tenuto import Sessions


async def last_chat(sessions: Sessions, user: str) -> str:
    page = await sessions.list(user_id=user, limit=1)
    return page[0].session_id if page else (await sessions.create(support, user_id=user)).session_id


async def main() -> None:
    async with runtime:
        chat = await last_chat(runtime.for_tenant("acme"), "ada")
        await runtime.for_tenant("globex").get(chat)  # SessionNotFound
        for wait in await runtime.across_tenants().waits(kind="approval"):
            print(wait.tenant, wait.tool)
