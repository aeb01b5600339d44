"""Tries a running server with `pydantic-ai`: by chats, by responses, and by Anthropic's messages.

    pip install pydantic-ai-slim[openai,anthropic]==2.68.0
    duet serve qwen2.5-coder-0.5b
    python tests/clients/pydantic_ai.py http://127.0.0.1:8080

One line per check; exits non-zero if any failed. Nothing is expected of what the model says; output that has a type is
asked for as a tool that has to be called, or as a schema.
"""

import asyncio
import sys
import traceback
from typing import Literal

# This file is called like the package: its folder must not come first.
sys.path = [folder for folder in sys.path if not folder.endswith("tests/clients")]

from pydantic import BaseModel  # noqa: E402
from pydantic_ai import Agent, NativeOutput, ToolOutput, UsageLimits  # noqa: E402
from pydantic_ai.messages import ToolReturnPart  # noqa: E402
from pydantic_ai.models.anthropic import AnthropicModel  # noqa: E402
from pydantic_ai.models.openai import OpenAIChatModel, OpenAIResponsesModel  # noqa: E402
from pydantic_ai.providers.anthropic import AnthropicProvider  # noqa: E402
from pydantic_ai.providers.openai import OpenAIProvider  # noqa: E402

URL = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080"
OPENAI = OpenAIProvider(base_url=f"{URL}/v1", api_key="none")
MODELS = {
    "chat": OpenAIChatModel("default", provider=OPENAI),
    "responses": OpenAIResponsesModel("default", provider=OPENAI),
    "messages": AnthropicModel("default", provider=AnthropicProvider(base_url=URL, api_key="none")),
}
SETTINGS = {"max_tokens": 200, "temperature": 0, "parallel_tool_calls": False}
LIMITS = UsageLimits(request_limit=6)


class Weather(BaseModel):
    city: Literal["Oslo", "Rome"]
    sunny: bool


async def text(model):
    result = await Agent(model, model_settings=SETTINGS).run("Name a colour.")
    assert result.output and result.usage.output_tokens > 0


async def a_stream(model):
    async with Agent(model, model_settings=SETTINGS).run_stream("Name a colour.") as stream:
        parts = [part async for part in stream.stream_text(delta=True)]
    assert "".join(parts)


async def output_of_a_type(model):
    agent = Agent(model, output_type=ToolOutput(Weather), model_settings=SETTINGS, retries=3)
    assert isinstance((await agent.run("It is sunny in Oslo.", usage_limits=LIMITS)).output, Weather)


async def output_by_a_schema(model):
    agent = Agent(model, output_type=NativeOutput(Weather), model_settings=SETTINGS, retries=3)
    assert isinstance((await agent.run("It is sunny in Oslo.", usage_limits=LIMITS)).output, Weather)


async def a_tool_and_output_of_a_type(model):
    agent = Agent(model, output_type=ToolOutput(Weather), model_settings=SETTINGS, retries=3)

    @agent.tool_plain
    def look_outside(city: Literal["Oslo", "Rome"]) -> str:
        """What the weather in a city is like. Ask this before the answer."""
        return f"It is sunny in {city}."

    result = await agent.run("What is the weather in Oslo? Look outside first.", usage_limits=LIMITS)
    assert isinstance(result.output, Weather)
    returned = [part for message in result.all_messages() for part in message.parts if isinstance(part, ToolReturnPart)]
    assert returned, "no tool was called"


async def main():
    failed = 0
    for name, model in MODELS.items():
        checks = [text, a_stream, output_of_a_type, a_tool_and_output_of_a_type]
        # Of Anthropic's models the package knows by their names which take schemas.
        for check in checks if name == "messages" else [*checks, output_by_a_schema]:
            label = f"{name}: {check.__name__.replace('_', ' ')}"
            try:
                await asyncio.wait_for(check(model), 300)
                print(f"ok     {label}", flush=True)
            except Exception:
                failed += 1
                print(f"FAILED {label}", flush=True)
                traceback.print_exc(file=sys.stdout)
    print(f"{failed} failed")
    sys.exit(failed > 0)


asyncio.run(main())
