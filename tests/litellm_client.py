"""LiteLLM as a client, run by the interpreter that has it, not the tests'. A JSON object a line, in and out.

`{"kind": "completion" | "acompletion" | "router", "model": …, "api_base": …, "content": …, …}` makes a call;
`{"kind": "wait", …}` asks the Router how long it would wait; `{"kind": "version"}` what is installed.
"""

from __future__ import annotations

import asyncio
import json
import os
import random
import sys
import time
from importlib.metadata import version
from typing import Any

os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
OUT, sys.stdout = sys.stdout, sys.stderr  # whatever LiteLLM prints is not an answer

import httpx  # noqa: E402
import litellm  # noqa: E402

litellm.telemetry = False
litellm.suppress_debug_info = True


class _Half(random.Random):
    def random(self) -> float:
        return 0.5


def messages(asked: dict[str, Any]) -> list[dict[str, str]]:
    return [{"role": "user", "content": asked["content"]}]


def options(asked: dict[str, Any]) -> dict[str, Any]:
    """What every kind of call is told."""
    names = ("stream", "num_retries", "max_retries", "max_tokens", "extra_headers", "timeout")
    return {name: asked[name] for name in names if name in asked}


def router(asked: dict[str, Any]) -> litellm.Router:
    """With one deployment, and LiteLLM's own defaults."""
    params = {"model": asked["model"], "api_base": asked["api_base"], "api_key": "sk-tenant"}
    names = ("num_retries",)
    own = {name: asked[name] for name in names if name in asked}
    return litellm.Router(model_list=[{"model_name": "m", "litellm_params": params}], **own)


async def whole(answer: Any) -> dict[str, Any]:
    """An answer, streamed or not, in the same words."""
    hidden = getattr(answer, "_hidden_params", {}).get("additional_headers", {})
    retries = hidden.get("x-litellm-attempted-retries")
    if hasattr(answer, "choices"):
        usage = answer.usage
        return {
            "text": answer.choices[0].message.content,
            "usage": [usage.prompt_tokens, usage.completion_tokens],
            "retries": retries,
        }
    pieces: list[str] = []
    if hasattr(answer, "__aiter__"):
        async for chunk in answer:
            pieces.append(chunk.choices[0].delta.content or "")
    else:
        pieces = [chunk.choices[0].delta.content or "" for chunk in answer]
    return {"text": "".join(pieces), "pieces": len([one for one in pieces if one]), "retries": retries}


async def call(asked: dict[str, Any]) -> dict[str, Any]:
    where = {"model": asked["model"], "api_base": asked["api_base"], "api_key": "sk-tenant"}
    match asked["kind"]:
        case "completion":
            done = await asyncio.to_thread(
                litellm.completion, messages=messages(asked), **where, **options(asked)
            )
        case "acompletion":
            done = await litellm.acompletion(messages=messages(asked), **where, **options(asked))
        case _:
            told = {name: value for name, value in options(asked).items() if name != "num_retries"}
            done = await router(asked).acompletion(model="m", messages=messages(asked), **told)
    return await whole(done)


def wait_s(asked: dict[str, Any]) -> float:
    """What the Router makes of a refusal: `number` retries have been taken of `num_retries`."""
    refused = httpx.Response(429, headers=asked["headers"], request=httpx.Request("POST", "http://x/"))
    error = litellm.RateLimitError("refused", "openai", "m", response=refused)
    taken, most = asked["number"], asked["num_retries"]
    made = router({"model": "openai/m", "api_base": "http://x/", "num_retries": most})
    return float(
        made._time_to_sleep_before_retry(
            e=error, remaining_retries=most - taken, num_retries=most, all_deployments=[{}]
        )
    )


def answer(asked: dict[str, Any]) -> dict[str, Any]:
    began_s = time.monotonic()
    try:
        if asked["kind"] == "version":
            return {"version": version("litellm")}
        if asked["kind"] == "wait":
            return {"wait_s": wait_s(asked), "now_s": time.time()}
        return {**asyncio.run(call(asked)), "error": None}
    except Exception as error:  # whatever it raises is what is asked for
        status = getattr(error, "status_code", None)
        return {"error": type(error).__name__, "status": status, "said": str(error)[:500]}
    finally:
        print(f"{asked['kind']}: {time.monotonic() - began_s:.2f} s", file=sys.stderr)


def main() -> None:
    random.random = _Half().random  # type: ignore[method-assign]  # its jitter, in the middle
    for line in sys.stdin:
        print(json.dumps(answer(json.loads(line))), file=OUT, flush=True)


main()
