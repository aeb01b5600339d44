"""Tries a running server with the official `anthropic` package.

    pip install -r tests/clients/requirements.txt
    python tests/clients/anthropic_messages.py http://127.0.0.1:8080

One line per check, then 'N passed, M failed'; exits non-zero if any failed. Works with any model: nothing is
expected of what it says, only of how the API behaves.
"""

import sys
import traceback

import anthropic

BASE_URL = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080"
client = anthropic.Anthropic(base_url=BASE_URL, api_key="none", max_retries=0)
QUESTION = [{"role": "user", "content": "Name the colours of the rainbow."}]
WEATHER = {
    "name": "get_weather",
    "description": "The weather in a city",
    "input_schema": {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]},
}
REASONS = {"end_turn", "max_tokens", "stop_sequence", "tool_use"}
CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def options(**more):
    # The package no longer has `temperature`.
    body = {"temperature": more.pop("temperature", 0)}
    return {"model": "default", "messages": QUESTION, "max_tokens": 16, "extra_body": body} | more


@check
def a_message_is_created():
    message = client.messages.create(**options(system="Be brief."))
    assert message.type == "message" and message.role == "assistant"
    assert message.stop_reason in REASONS, message.stop_reason
    assert all(block.type == "text" for block in message.content), message.content
    assert message.usage.input_tokens + message.usage.cache_read_input_tokens > 0
    assert 0 < message.usage.output_tokens <= 16


@check
def a_second_turn_reads_from_the_cache():
    text = [{"type": "text", "text": "Be brief. " * 50, "cache_control": {"type": "ephemeral"}}]
    client.messages.create(**options(system=text))
    again = client.messages.create(**options(system=text))
    assert again.usage.cache_read_input_tokens > 50, again.usage


@check
def a_message_is_streamed():
    with client.messages.stream(**options()) as stream:
        text = "".join(stream.text_stream)
        message = stream.get_final_message()
    assert "".join(block.text for block in message.content) == text
    assert message.stop_reason in REASONS
    assert message.usage.output_tokens > 0


@check
def the_raw_events_come_in_order():
    names = [event.type for event in client.messages.create(stream=True, **options(max_tokens=4))]
    assert names[0] == "message_start" and names[-2:] == ["message_delta", "message_stop"], names


@check
def a_stop_sequence_is_named():
    message = client.messages.create(**options(max_tokens=64, stop_sequences=["e"]))
    assert message.stop_reason == "stop_sequence" and message.stop_sequence == "e", message
    assert all("e" not in block.text for block in message.content)


@check
def tools_go_round():
    question = [{"role": "user", "content": "What is the weather in Paris?"}]
    asked = options(messages=question, tools=[WEATHER], max_tokens=128)
    message = client.messages.create(tool_choice={"type": "tool", "name": "get_weather"}, **asked)
    assert message.stop_reason == "tool_use", message
    call = message.content[-1]
    assert call.type == "tool_use" and call.name == "get_weather" and isinstance(call.input["city"], str)
    result = {"type": "tool_result", "tool_use_id": call.id, "content": [{"type": "text", "text": "sunny"}]}
    asked["messages"] = question + [
        {"role": "assistant", "content": message.content},
        {"role": "user", "content": [result]},
    ]
    assert client.messages.create(**asked).stop_reason in REASONS


@check
def tools_are_streamed():
    choice = {"type": "any", "disable_parallel_tool_use": True}
    asked = options(tools=[WEATHER], tool_choice=choice, max_tokens=128)
    with client.messages.stream(**asked) as stream:
        message = stream.get_final_message()
    assert message.stop_reason == "tool_use", message
    assert isinstance(message.content[-1].input["city"], str)


@check
def thinking_can_be_said():
    for thinking in [{"type": "disabled"}, {"type": "enabled", "budget_tokens": 1024}]:
        message = client.messages.create(**options(thinking=thinking, max_tokens=2048, stop_sequences=[" "]))
        assert message.stop_reason in REASONS


@check
def an_answer_is_held_to_a_schema():
    schema = {
        "type": "object",
        "properties": {"warm": {"type": "boolean"}},
        "required": ["warm"],
        "additionalProperties": False,
    }
    form = {"format": {"type": "json_schema", "schema": schema}}
    message = client.messages.create(**options(max_tokens=64, output_config=form))
    assert message.content[0].text.replace(" ", "").replace("\n", "") in ('{"warm":true}', '{"warm":false}')


@check
def the_beta_client_works():
    message = client.beta.messages.create(**options(betas=["interleaved-thinking-2025-05-14"]))
    assert message.type == "message"


@check
def tokens_are_counted():
    counted = client.messages.count_tokens(model="default", messages=QUESTION)
    message = client.messages.create(**options(max_tokens=1))
    usage = message.usage
    assert counted.input_tokens == usage.input_tokens + usage.cache_read_input_tokens, (counted, usage)


@check
def errors_have_their_types():
    refusals = [
        (anthropic.NotFoundError, "not_found_error", options(model="claude-opus-4-5")),
        (anthropic.BadRequestError, "invalid_request_error", options(temperature=9)),
        (anthropic.BadRequestError, "invalid_request_error", options(messages=[{"role": "user", "content": "x " * 300_000}])),
    ]
    for error, kind, asked in refusals:
        try:
            client.messages.create(**asked)
        except error as refusal:
            assert refusal.body["type"] == "error" and refusal.body["error"]["type"] == kind, refusal.body
        else:
            raise AssertionError("it was accepted")


def main():
    failed = 0
    for function in CHECKS:
        name = function.__name__.replace("_", " ")
        try:
            function()
            print(f"ok      {name}", flush=True)
        except Exception:
            failed += 1
            print(f"FAILED  {name}", flush=True)
            traceback.print_exc()
    print(f"{len(CHECKS) - failed} passed, {failed} failed")
    sys.exit(failed > 0)


main()
