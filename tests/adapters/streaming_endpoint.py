# SPDX-License-Identifier: Apache-2.0
"""A model's endpoint that streams one answer to everything: `python streaming_endpoint.py PORT ANSWER_FILE`."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import uvicorn
from fastapi import FastAPI, Request
from fastapi.responses import JSONResponse, Response, StreamingResponse

app, ANSWER = FastAPI(), Path(sys.argv[2]).read_text() if len(sys.argv) > 2 else ""
USAGE = {"prompt_tokens": 1, "completion_tokens": 1, "total_tokens": 2}


def chunk(delta: dict[str, Any], **more: Any) -> str:
    choice = {"index": 0, "delta": delta, "finish_reason": more.pop("finish_reason", None)}
    body = {"id": "one", "object": "chat.completion.chunk", "created": 0, "model": "one", "choices": [choice], **more}
    return f"data: {json.dumps(body)}\n\n"


def streamed() -> Iterator[str]:
    yield chunk({"role": "assistant", "content": ANSWER})
    yield chunk({}, finish_reason="stop", usage=USAGE)
    yield "data: [DONE]\n\n"


@app.post("/v1/chat/completions")
async def answer(request: Request) -> Response:
    if (await request.json()).get("stream"):
        return StreamingResponse(streamed(), media_type="text/event-stream")
    choice = {"index": 0, "message": {"role": "assistant", "content": ANSWER}, "finish_reason": "stop"}
    body = {"id": "one", "object": "chat.completion", "created": 0, "model": "one", "choices": [choice], "usage": USAGE}
    return JSONResponse(body)


if __name__ == "__main__":
    uvicorn.run(app, host="127.0.0.1", port=int(sys.argv[1]), log_level="warning")
