"""Tries a running server with `langchain-openai` and an agent of `langchain`.

    pip install langchain-openai==1.7.3 langchain==1.4.7
    duet serve qwen2.5-coder-0.5b
    python tests/clients/langchain_openai.py http://127.0.0.1:8080/v1

One line per check; exits non-zero at the first that fails. Nothing is expected of what the model says; where it has to
call a tool it is made to.
"""

import sys

# This file is called like the package: its folder must not come first.
sys.path = [folder for folder in sys.path if not folder.endswith("tests/clients")]

from langchain.agents import create_agent  # noqa: E402
from langchain_core.messages import ToolMessage  # noqa: E402
from langchain_core.tools import tool  # noqa: E402
from langchain_openai import ChatOpenAI  # noqa: E402
from pydantic import BaseModel  # noqa: E402

URL = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080/v1"
SHORT = {"base_url": URL, "api_key": "none", "model": "default", "max_tokens": 64, "temperature": 0, "max_retries": 0}


@tool
def add(a: int, b: int) -> int:
    """Adds two numbers."""
    return a + b


class Colour(BaseModel):
    name: str
    warm: bool


class OnceMade(ChatOpenAI):
    """Has to call a tool until there is a result."""

    def _get_request_payload(self, messages, **options):
        payload = super()._get_request_payload(messages, **options)
        if payload.get("tools"):
            done = any(message["role"] == "tool" for message in payload["messages"])
            payload |= {"tool_choice": "none" if done else "required", "parallel_tool_calls": False}
        return payload


def main():
    chat = ChatOpenAI(**SHORT)
    answer = chat.invoke("Name a colour.")
    assert isinstance(answer.content, str) and answer.usage_metadata["output_tokens"] > 0
    print("ok     a chat is answered", flush=True)

    parts = list(ChatOpenAI(**SHORT, stream_usage=True).stream("Name a colour."))
    assert "".join(part.content for part in parts) == answer.content
    assert sum(part.usage_metadata["output_tokens"] for part in parts if part.usage_metadata) > 0
    print("ok     a chat is streamed", flush=True)

    assert len(chat.batch(["Say one.", "Say two.", "Say three."])) == 3
    print("ok     several are asked together", flush=True)

    called = chat.bind_tools([add], tool_choice="required", parallel_tool_calls=False).invoke("Add 2 and 3.")
    [call] = called.tool_calls
    assert call["name"] == "add" and set(call["args"]) == {"a", "b"} and not called.invalid_tool_calls
    print("ok     a tool is called", flush=True)

    whole = None
    for part in chat.bind_tools([add], tool_choice="add").stream("Add 2 and 3."):
        whole = part if whole is None else whole + part
    assert whole.tool_calls[0]["name"] == "add" and isinstance(whole.tool_calls[0]["args"]["a"], int)
    print("ok     a call is streamed", flush=True)

    for method in ("json_schema", "function_calling"):
        colour = chat.with_structured_output(Colour, method=method).invoke("Name a colour, and say whether it is warm.")
        assert isinstance(colour, Colour), colour
    print("ok     an answer has the form that was asked for", flush=True)

    said = create_agent(OnceMade(**SHORT), [add]).invoke({"messages": [{"role": "user", "content": "Add 2 and 3."}]})
    assert [message for message in said["messages"] if isinstance(message, ToolMessage)], said
    print("ok     an agent calls its tool and goes on", flush=True)

    answer = ChatOpenAI(**SHORT, use_responses_api=True).invoke("Name a colour.")
    assert answer.text and answer.usage_metadata["output_tokens"] > 0
    print("ok     the same by way of responses", flush=True)


main()
