"""Tries `/v1/responses` of a running server with the `openai-agents` package.

    pip install openai-agents==0.24.0
    python tests/clients/openai_agents.py http://127.0.0.1:8080/v1

One line per check; exits non-zero if any failed. The model may say anything; it is made to call a tool once.
"""

import asyncio
import sys
import traceback
from typing import Literal

from agents import Agent, ModelSettings, OpenAIResponsesModel, Runner, function_tool, set_tracing_disabled
from openai import AsyncOpenAI

BASE_URL = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080/v1"
set_tracing_disabled(True)
client = AsyncOpenAI(base_url=BASE_URL, api_key="none", max_retries=0)
model = OpenAIResponsesModel(model="default", openai_client=client)
CALLED = []


@function_tool
def weather(city: Literal["Oslo", "Rome"]) -> str:
    """The weather in a city."""
    CALLED.append(city)
    return "sunny"


def agent(**options):
    settings = {"temperature": 0, "max_tokens": 200, "parallel_tool_calls": False} | options
    instructions = "Answer in one short sentence. Ask the tool for the weather."
    # The package takes complete answers only, so a run ends with the tool: what a small model says after it may be long.
    return Agent(
        name="test",
        instructions=instructions,
        model=model,
        tools=[weather],
        tool_use_behavior="stop_on_first_tool",
        model_settings=ModelSettings(**settings),
    )


async def a_run_calls_the_tool():
    CALLED.clear()
    result = await Runner.run(agent(tool_choice="required"), "What is the weather in Oslo?", max_turns=4)
    assert CALLED, "the tool was not called"
    assert isinstance(result.final_output, str)
    assert any(item.type == "tool_call_output_item" for item in result.new_items), result.new_items


async def a_streamed_run_does_the_same():
    CALLED.clear()
    result = Runner.run_streamed(agent(tool_choice="required"), "What is the weather in Oslo?", max_turns=4)
    kinds = {event.type async for event in result.stream_events()}
    assert CALLED and "raw_response_event" in kinds, kinds


async def a_run_goes_on_from_the_last_response():
    first = await Runner.run(agent(tool_choice="none"), "My name is Ann.")
    again = await Runner.run(agent(tool_choice="none"), "Who am I?", previous_response_id=first.last_response_id)
    before, after = (run.raw_responses[0].usage.input_tokens for run in (first, again))
    assert after > before, (before, after)


failed = 0
checks = [a_run_calls_the_tool, a_streamed_run_does_the_same, a_run_goes_on_from_the_last_response]


async def main():
    global failed
    for function in checks:
        try:
            await function()
            print("ok    ", function.__name__, flush=True)
        except Exception:
            failed += 1
            print("FAILED", function.__name__, flush=True)
            traceback.print_exc(file=sys.stdout)


asyncio.run(main())
print(f"{len(checks) - failed} passed, {failed} failed")
sys.exit(1 if failed else 0)
