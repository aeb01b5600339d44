"""Tries `duet mcp` with the official `mcp` package.

    pip install mcp==2.3.0
    python tests/clients/mcp_client.py target/release/duet [MODEL]

One line per check, then 'N passed, M failed'; exits non-zero if any failed. Works with any model: nothing is
expected of what it says, only of how the tools behave.
"""

import asyncio
import json
import sys
import traceback

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

SERVER = StdioServerParameters(command=sys.argv[1], args=["mcp", *sys.argv[2:3]])
CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def text_of(result):
    [content] = result.content
    return content.text


@check
async def tools_are_listed(session):
    tools = (await session.list_tools()).tools
    assert [tool.name for tool in tools] == ["generate", "classify", "summarise"], tools


@check
async def generate_answers(session):
    result = await session.call_tool("generate", {"prompt": "Name three colours.", "max_tokens": 24})
    assert text_of(result), result


@check
async def generate_is_held_to_a_schema(session):
    schema = {"type": "object", "properties": {"age": {"enum": [7, 8]}}, "required": ["age"], "additionalProperties": False}
    result = await session.call_tool("generate", {"prompt": "Ada is eight years old.", "schema": schema})
    assert json.loads(text_of(result))["age"] in (7, 8), result


@check
async def classify_names_a_label(session):
    labels = ["weather", "sport"]
    result = await session.call_tool("classify", {"text": "It rained all day.", "labels": labels})
    told = json.loads(text_of(result))
    assert told["label"] in labels and abs(sum(told["probabilities"].values()) - 1) < 1e-6, result


@check
async def summarise_answers(session):
    text = "Cats sleep for most of the day. They hunt at dawn and at dusk, and clean their fur for hours."
    result = await session.call_tool("summarise", {"text": text, "words": 15})
    assert text_of(result), result


@check
async def calls_may_be_made_all_at_once(session):
    calls = [session.call_tool("generate", {"prompt": f"Say {n}.", "max_tokens": 8}) for n in range(4)]
    assert all(text_of(result) for result in await asyncio.gather(*calls))


@check
async def a_bad_argument_is_named(session):
    result = await session.call_tool("generate", {"prompt": "Hi", "max_tokens": -1})
    assert text_of(result).startswith("max_tokens: "), result


async def main():
    failed = 0
    async with stdio_client(SERVER) as (read, write), ClientSession(read, write) as session:
        await session.initialize()
        for function in CHECKS:
            name = function.__name__.replace("_", " ")
            try:
                await asyncio.wait_for(function(session), 120)
                print(f"ok      {name}")
            except Exception:
                failed += 1
                print(f"FAILED  {name}")
                traceback.print_exc()
    print(f"{len(CHECKS) - failed} passed, {failed} failed")
    return failed


if __name__ == "__main__":
    sys.exit(asyncio.run(main()) > 0)
