from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from fastapi import FastAPI, Header
from fastapi.responses import StreamingResponse

from shop import runtime, support


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncGenerator[None, None]:
    async with runtime:
        yield
app = FastAPI(lifespan=lifespan)

@app.post("/chats/{chat}")
async def say(chat: str, text: str, key: str) -> str:
    session = await runtime.create(support, session_id=chat, exists_ok=True)
    return (await session.start(text, key, when_busy="queue")).input_id

@app.get("/chats/{chat}/events")
async def follow(chat: str, last_event_id: int = Header(0)) -> StreamingResponse:
    events = runtime.session(chat).events(after=last_event_id)
    return StreamingResponse((item.sse() async for item in events), media_type="text/event-stream")
