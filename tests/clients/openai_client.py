"""Tries a running server with the official `openai` package.

    pip install -r tests/clients/requirements.txt
    python tests/clients/openai_client.py http://127.0.0.1:8080/v1

One line per check, then 'N passed, M failed'; exits non-zero if any failed. Works with any model: nothing is
expected of what it says, only of how the API behaves.
"""

import asyncio
import json
import sys
import traceback
from array import array

from openai import APIStatusError, AsyncOpenAI, BadRequestError, NotFoundError, OpenAI

BASE_URL = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080/v1"
client = OpenAI(base_url=BASE_URL, api_key="none", max_retries=0)
MODEL = "default"
QUESTION = [{"role": "user", "content": "Name the colours of the rainbow."}]
CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def chat(**options):
    options = {"model": MODEL, "messages": QUESTION, "max_tokens": 16, "temperature": 0} | options
    return client.chat.completions.create(**options)


def complete(**options):
    options = {"model": MODEL, "prompt": "Once upon a time", "max_tokens": 16, "temperature": 0} | options
    return client.completions.create(**options)


def refused(error, call, *, param=None, code=None, mentions=""):
    try:
        call()
    except error as refusal:
        assert type(refusal) is error, f"{type(refusal).__name__} instead of {error.__name__}"
        assert refusal.param == param, f"param is {refusal.param!r}"
        assert code is None or refusal.code == code, f"code is {refusal.code!r}"
        assert mentions in refusal.body["message"], refusal.body["message"]
    else:
        raise AssertionError("it was accepted")


def same_usage(a, b):
    """The second of two equal prompts may have been cached."""
    return (a.prompt_tokens, a.completion_tokens, a.total_tokens) == (
        b.prompt_tokens,
        b.completion_tokens,
        b.total_tokens,
    )


@check
def models_are_listed_and_retrieved():
    models = client.models.list().data
    assert models and models[0].object == "model"
    assert client.models.retrieve(models[0].id).id == models[0].id
    assert chat(model=models[0].id).model == models[0].id


@check
def chat_answers():
    answer = chat()
    choice = answer.choices[0]
    assert answer.id.startswith("chatcmpl-") and answer.object == "chat.completion"
    assert choice.message.role == "assistant" and choice.message.content
    assert choice.finish_reason in ("stop", "length")
    usage = answer.usage
    assert 0 < usage.completion_tokens <= 16 and usage.prompt_tokens > 0
    assert usage.total_tokens == usage.prompt_tokens + usage.completion_tokens
    assert usage.prompt_tokens_details.cached_tokens >= 0


@check
def chat_streams_what_it_answers():
    whole = chat()
    chunks = list(chat(stream=True, stream_options={"include_usage": True}))
    assert chunks[0].choices[0].delta.role == "assistant"
    assert all(chunk.object == "chat.completion.chunk" and chunk.id == chunks[0].id for chunk in chunks)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks[:-1])
    assert text == whole.choices[0].message.content, f"{text!r}, not {whole.choices[0].message.content!r}"
    assert chunks[-2].choices[0].finish_reason == whole.choices[0].finish_reason
    assert chunks[-1].choices == [] and same_usage(chunks[-1].usage, whole.usage)
    assert all(chunk.usage is None for chunk in chunks[:-1])


@check
def usage_is_not_streamed_unasked():
    assert all(chunk.usage is None and chunk.choices for chunk in chat(stream=True))


@check
def completions_answer_and_stream():
    whole = complete()
    assert whole.id.startswith("cmpl-") and whole.object == "text_completion"
    chunks = list(complete(stream=True, stream_options={"include_usage": True}))
    text = "".join(chunk.choices[0].text for chunk in chunks[:-1])
    assert text == whole.choices[0].text
    assert same_usage(chunks[-1].usage, whole.usage)


@check
def completions_echo():
    assert complete(echo=True).choices[0].text == "Once upon a time" + complete().choices[0].text


@check
def completions_tell_how_likely_a_prompt_is():
    choice = complete(echo=True, logprobs=2, max_tokens=0).choices[0]
    assert choice.text == "Once upon a time" and choice.finish_reason == "length"
    logprobs = choice.logprobs
    assert "".join(logprobs.tokens) == choice.text
    assert logprobs.token_logprobs[0] is None and all(logprob <= 0 for logprob in logprobs.token_logprobs[1:])
    starts = [choice.text[at:] for at in logprobs.text_offset]
    assert all(start.startswith(token) for start, token in zip(starts, logprobs.tokens))
    assert all(logprobs.top_logprobs[at][token] == logprobs.token_logprobs[at]
               for at, token in enumerate(logprobs.tokens) if at > 0)


@check
def the_same_seed_says_the_same():
    texts = [chat(seed=seed, temperature=1).choices[0].message.content for seed in (7, 7, 8, 9, 10, 11)]
    assert texts[0] == texts[1], f"{texts[0]!r}, then {texts[1]!r}"
    assert len(set(texts)) > 1, "every seed says the same"


@check
def token_limits_hold():
    for limit in ({"max_tokens": 3}, {"max_tokens": None, "max_completion_tokens": 3}):
        answer = chat(**limit, extra_body={"ignore_eos": True})
        assert answer.usage.completion_tokens == 3
        assert answer.choices[0].finish_reason == "length"


@check
def stop_strings_end_the_text():
    full = complete(max_tokens=24).choices[0].text
    words = full.split()
    stop = words[len(words) // 2]
    before = full[: full.index(stop)]
    for stops in (stop, [stop, "never said 8315"]):
        choice = complete(max_tokens=24, stop=stops).choices[0]
        assert choice.text == before, f"{choice.text!r}, not {before!r}"
        assert choice.finish_reason == "stop"
        streamed = "".join(chunk.choices[0].text for chunk in complete(max_tokens=24, stop=stops, stream=True))
        assert streamed == before, f"streamed {streamed!r}, not {before!r}"


@check
def chat_logprobs():
    options = {"logprobs": True, "top_logprobs": 3}
    answer = chat(**options)
    content = answer.choices[0].logprobs.content
    assert content
    for token in content:
        assert token.logprob <= 0 and len(token.top_logprobs) == 3
        logprobs = [top.logprob for top in token.top_logprobs]
        assert logprobs == sorted(logprobs, reverse=True)
        assert abs(token.logprob - logprobs[0]) < 1e-3, "greedy takes the likeliest"
    text = b"".join(bytes(token.bytes) for token in content)
    assert text.startswith(answer.choices[0].message.content.encode())
    chunks = [chunk.choices[0].logprobs for chunk in chat(stream=True, **options)]
    streamed = [token.token for logprobs in chunks if logprobs for token in logprobs.content]
    assert streamed == [token.token for token in content][: len(streamed)]


@check
def completion_logprobs():
    logprobs = complete(logprobs=2).choices[0].logprobs
    lengths = {len(x) for x in (logprobs.tokens, logprobs.token_logprobs, logprobs.top_logprobs, logprobs.text_offset)}
    assert len(lengths) == 1 and lengths != {0}
    assert logprobs.text_offset[0] == 0 and logprobs.text_offset == sorted(logprobs.text_offset)


@check
def several_turns_and_a_system_message():
    messages = [
        {"role": "system", "content": "You are terse."},
        {"role": "user", "content": [{"type": "text", "text": "My name is Ada."}]},
        {"role": "assistant", "content": "Hello, Ada."},
        {"role": "user", "content": "What is my name?"},
    ]
    longer = chat(messages=messages)
    assert longer.choices[0].message.content
    assert longer.usage.prompt_tokens > chat(messages=messages[1:2]).usage.prompt_tokens


@check
def background_work_is_accepted():
    assert chat(service_tier="flex").service_tier == "flex"
    assert chat(extra_body={"background": True}).choices


@check
def fields_without_effect_are_listed():
    options = {"model": MODEL, "messages": QUESTION, "max_tokens": 1, "extra_body": {"wild": 1}}
    response = client.chat.completions.with_raw_response.create(**options)
    assert "wild" in response.headers["x-duet-ignored-fields"]


@check
def a_required_call_is_valid_and_goes_back():
    parameters = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    tool = {"type": "function", "function": {"name": "get_weather", "parameters": parameters}}
    asked = {"tools": [tool], "tool_choice": "required", "parallel_tool_calls": False, "max_tokens": 64}
    choice = chat(**asked).choices[0]
    assert choice.finish_reason == "tool_calls", choice
    call = choice.message.tool_calls[0]
    assert call.function.name == "get_weather" and isinstance(json.loads(call.function.arguments)["city"], str)
    result = {"role": "tool", "tool_call_id": call.id, "content": "sunny"}
    messages = QUESTION + [choice.message.model_dump(exclude_none=True), result]
    assert chat(messages=messages, tools=[tool]).choices
    wrong = QUESTION + [{**result, "tool_call_id": "never"}]
    refused(BadRequestError, lambda: chat(messages=wrong), param="messages[1].tool_call_id")


@check
def answers_keep_to_a_schema():
    schema = {"type": "object", "properties": {"sure": {"type": "boolean"}}, "required": ["sure"], "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}
    content = chat(response_format=form, max_tokens=32).choices[0].message.content
    assert list(json.loads(content)) == ["sure"], content


@check
def several_answers_come_at_once():
    assert [choice.index for choice in chat(n=3, max_tokens=4).choices] == [0, 1, 2]


@check
def texts_have_embeddings():
    texts = ["The cat sat on the mat.", "A cat was sitting on a mat.", "Interest rates rose by half a point."]
    # The package asks for base64 and decodes it, unless it is told a format.
    answer = client.embeddings.create(model=MODEL, input=texts)
    vectors = [entry.embedding for entry in answer.data]
    assert [entry.index for entry in answer.data] == [0, 1, 2] and len(set(map(len, vectors))) == 1
    assert all(abs(sum(x * x for x in vector) - 1) < 1e-4 for vector in vectors)
    near, far = (sum(a * b for a, b in zip(vectors[0], other)) for other in vectors[1:])
    assert near > far, f"{near} and {far}"
    assert answer.usage.prompt_tokens == answer.usage.total_tokens > 0
    again = client.embeddings.create(model=MODEL, input=texts[0], encoding_format="float").data[0].embedding
    # Written as decimals, or as the bytes of single precision.
    assert array("f", again).tolist() == vectors[0], "an embedding is the same whatever was read before it, and however it is written"
    short = client.embeddings.create(model=MODEL, input=texts[0], dimensions=8).data[0].embedding
    assert len(short) == 8 and abs(sum(x * x for x in short) - 1) < 1e-4
    refused(BadRequestError, lambda: client.embeddings.create(model=MODEL, input=""), param="input")
    refused(BadRequestError, lambda: client.embeddings.create(model=MODEL, input="x", dimensions=10**6), param="dimensions")
    long = "word " * 400_000
    refused(BadRequestError, lambda: client.embeddings.create(model=MODEL, input=long), param="input", code="context_length_exceeded")


@check
def bad_requests_name_the_parameter():
    refused(BadRequestError, lambda: chat(temperature=-1), param="temperature", mentions="-1")
    refused(BadRequestError, lambda: chat(top_p=7), param="top_p")
    refused(BadRequestError, lambda: chat(n=17), param="n")
    refused(BadRequestError, lambda: chat(messages=[]), param="messages")
    wizard = [{"role": "wizard", "content": "hi"}]
    refused(BadRequestError, lambda: chat(messages=wizard), param="messages[0].role", mentions="wizard")
    refused(BadRequestError, lambda: chat(response_format={"type": "yaml"}), param="response_format.type", mentions="yaml")
    # Errors before the first chunk are errors of the call, streamed or not.
    refused(BadRequestError, lambda: chat(temperature=-1, stream=True), param="temperature")


@check
def prompts_beyond_the_context_are_refused():
    long = [{"role": "user", "content": "word " * 400_000}]
    refused(BadRequestError, lambda: chat(messages=long), param="messages", code="context_length_exceeded")


@check
def unknown_things_are_not_found():
    refused(NotFoundError, lambda: chat(model="gpt-4o"), param="model", code="model_not_found")
    refused(NotFoundError, lambda: client.models.retrieve("gpt-4o"), param="model", code="model_not_found")
    refused(NotFoundError, lambda: client.images.generate(model=MODEL, prompt="x"), code="unknown_url")
    refused(NotFoundError, lambda: client.embeddings.create(model="text-embedding-3-small", input="x"), param="model")


@check
def a_huge_body_is_refused_and_the_server_lives():
    huge = [{"role": "user", "content": "x" * (20 << 20)}]
    refused(APIStatusError, lambda: chat(messages=huge), code="request_too_large")
    assert chat(max_tokens=1).choices


@check
def an_abandoned_stream_does_no_harm():
    with chat(stream=True, max_tokens=1000) as stream:
        next(iter(stream))
    assert chat(max_tokens=1).choices


@check
def clients_are_served_together():
    async def together():
        async with AsyncOpenAI(base_url=BASE_URL, api_key="none", max_retries=0) as client:

            async def ask():
                options = {"model": MODEL, "messages": QUESTION, "max_tokens": 8, "temperature": 0}
                return (await client.chat.completions.create(**options)).choices[0].message.content

            return await asyncio.gather(*(ask() for _ in range(8)))

    answers = asyncio.run(together())
    assert len(answers) == 8 and all(answers)


def main():
    failed = 0
    for function in CHECKS:
        name = function.__name__.replace("_", " ")
        try:
            function()
        except Exception as error:
            failed += 1
            where = traceback.extract_tb(error.__traceback__)
            line = next((frame.lineno for frame in where if frame.name == function.__name__), "?")
            print(f"FAILED {name} (line {line}): {type(error).__name__}: {str(error)[:300]}", flush=True)
        else:
            print(f"ok     {name}", flush=True)
    print(f"{len(CHECKS) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
