"""Tries `/v1/responses` of a running server with the official `openai` package.

    pip install openai==3.54.0
    python tests/clients/responses.py http://127.0.0.1:8080/v1

One line per check; exits non-zero if any failed. Works with any model: nothing is expected of what it says, only of
how the API behaves.
"""

import json
import sys
import time
import traceback

from openai import BadRequestError, NotFoundError, OpenAI

BASE_URL = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080/v1"
client = OpenAI(base_url=BASE_URL, api_key="none", max_retries=0)
ADD = {
    "type": "function",
    "name": "add",
    "description": "Adds two numbers.",
    "strict": True,
    "parameters": {
        "type": "object",
        "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}},
        "required": ["a", "b"],
        "additionalProperties": False,
    },
}
CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def create(**options):
    options = {"model": "default", "input": "Name a colour.", "max_output_tokens": 24, "temperature": 0} | options
    return client.responses.create(**options)


def refused(error, call, param):
    try:
        call()
    except error as refusal:
        assert refusal.param == param, f"param is {refusal.param!r}"
    else:
        raise AssertionError("it was accepted")


@check
def an_answer_has_its_shape():
    answer = create(instructions="Be brief.", metadata={"for": "a test"})
    assert answer.status in ("completed", "incomplete"), answer.status
    assert answer.object == "response" and answer.id.startswith("resp_")
    assert answer.metadata == {"for": "a test"} and answer.temperature == 0
    usage = answer.usage
    assert usage.total_tokens == usage.input_tokens + usage.output_tokens
    assert usage.output_tokens_details.reasoning_tokens <= usage.output_tokens
    assert answer.output[-1].type in ("message", "reasoning")


@check
def events_come_in_order():
    texts, kinds, final = [], [], None
    for number, event in enumerate(create(stream=True)):
        assert event.sequence_number == number
        kinds.append(event.type)
        if event.type == "response.output_text.delta":
            texts.append(event.delta)
        if event.type in ("response.completed", "response.incomplete"):
            final = event.response
    assert kinds[:3] == ["response.created", "response.in_progress", "response.output_item.added"], kinds
    assert final is not None and kinds[-1] == f"response.{final.status}", kinds
    assert final.output_text == "".join(texts)


@check
def the_streaming_helper_understands_them():
    # Held to a form that ends: the helper takes complete answers only.
    schema = {"enum": ["red", "blue"]}
    form = {"format": {"type": "json_schema", "name": "colour", "schema": schema}}
    with client.responses.stream(model="default", input="Name a colour.", text=form) as stream:
        for _ in stream:
            pass
        kinds = {item.type for item in stream.get_final_response().output}
    assert kinds <= {"message", "reasoning"}, kinds


@check
def tools_go_round_by_previous_response():
    first = create(input="What is 2 + 3?", tools=[ADD], tool_choice="required", max_output_tokens=200)
    calls = [item for item in first.output if item.type == "function_call"]
    assert calls and calls[0].name == "add", first.output
    assert set(json.loads(calls[0].arguments)) == {"a", "b"}, calls[0].arguments
    results = [{"type": "function_call_output", "call_id": call.call_id, "output": "5"} for call in calls]
    second = create(input=results, previous_response_id=first.id, tools=[ADD])
    assert second.previous_response_id == first.id and second.usage.input_tokens > first.usage.input_tokens
    again = [{"role": "user", "content": "What is 2 + 3?"}, *first.output, *results]
    third = create(input=again, tools=[ADD], store=False)
    assert third.usage.input_tokens == second.usage.input_tokens, "the same conversation, told in full"


@check
def a_call_is_streamed():
    events = list(create(input="What is 2 + 3?", tools=[ADD], tool_choice="required", max_output_tokens=200, stream=True))
    parts = [event.delta for event in events if event.type == "response.function_call_arguments.delta"]
    [done, *_] = [event for event in events if event.type == "response.function_call_arguments.done"]
    assert done.arguments == "".join(parts) or len(parts) > 1


@check
def a_schema_is_kept_to():
    schema = {
        "type": "object",
        "properties": {"colour": {"enum": ["red", "blue"]}},
        "required": ["colour"],
        "additionalProperties": False,
    }
    form = {"type": "json_schema", "name": "colour", "schema": schema, "strict": True}
    answer = create(text={"format": form}, max_output_tokens=60, reasoning={"effort": "none"})
    assert json.loads(answer.output_text)["colour"] in ("red", "blue"), answer.output_text


@check
def responses_are_fetched_listed_and_deleted():
    answer = create(max_output_tokens=4)
    assert client.responses.retrieve(answer.id).output == answer.output
    [item] = client.responses.input_items.list(answer.id).data
    assert item.content[0].text == "Name a colour."
    client.responses.delete(answer.id)
    refused(NotFoundError, lambda: client.responses.retrieve(answer.id), None)
    refused(NotFoundError, lambda: create(previous_response_id=answer.id), "previous_response_id")
    unkept = create(max_output_tokens=4, store=False)
    refused(NotFoundError, lambda: client.responses.retrieve(unkept.id), None)


@check
def work_in_the_background_ends_by_itself():
    answer = create(background=True, max_output_tokens=8)
    assert answer.status == "queued" and answer.service_tier == "flex", answer
    deadline = time.monotonic() + 120
    while answer.status in ("queued", "in_progress") and time.monotonic() < deadline:
        time.sleep(0.2)
        answer = client.responses.retrieve(answer.id)
    assert answer.status in ("completed", "incomplete"), answer.status


@check
def work_in_the_background_is_cancelled():
    answer = create(input="Count to a thousand.", background=True, max_output_tokens=2000)
    assert client.responses.cancel(answer.id).status == "cancelled"
    assert client.responses.retrieve(answer.id).status == "cancelled"


@check
def work_in_the_background_is_watched():
    kinds = [event.type for event in create(background=True, stream=True, max_output_tokens=8)]
    assert kinds[:3] == ["response.created", "response.queued", "response.in_progress"], kinds
    assert kinds[-1] in ("response.completed", "response.incomplete"), kinds


@check
def nonsense_is_refused_by_name():
    orphan = [{"type": "function_call_output", "call_id": "none", "output": "5"}]
    refused(BadRequestError, lambda: create(input=orphan), "input[0].call_id")
    refused(BadRequestError, lambda: create(input=""), "input")
    refused(BadRequestError, lambda: create(input=[]), "input")
    refused(BadRequestError, lambda: create(truncation="auto"), "truncation")


failed = 0
for function in CHECKS:
    try:
        function()
        print("ok    ", function.__name__, flush=True)
    except Exception:
        failed += 1
        print("FAILED", function.__name__, flush=True)
        traceback.print_exc(file=sys.stdout)
print(f"{len(CHECKS) - failed} passed, {failed} failed")
sys.exit(1 if failed else 0)
