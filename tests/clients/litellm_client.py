"""Tries a running server with `litellm`: as one of OpenAI's kind, of Anthropic's and of Ollama's.

    pip install litellm==1.106.2 mcp==2.3.0
    duet serve qwen2.5-coder-0.5b
    python tests/clients/litellm_client.py http://127.0.0.1:8080

One line per check; exits non-zero if any failed. Nothing is expected of what the model says.
"""

import json
import os
import sys
import traceback

# It would look for prices of models elsewhere.
os.environ["LITELLM_LOCAL_MODEL_COST_MAP"] = "True"
import litellm  # noqa: E402

URL = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080"
PROVIDERS = {
    "openai/default": {"api_base": f"{URL}/v1", "api_key": "none"},
    "anthropic/default": {"api_base": URL, "api_key": "none"},
    "ollama_chat/default": {"api_base": URL},
}
QUESTION = [{"role": "user", "content": "Name a colour."}]
PARAMETERS = {"type": "object", "properties": {"a": {"type": "integer"}, "b": {"type": "integer"}}, "required": ["a", "b"]}
ADD = {"type": "function", "function": {"name": "add", "description": "Adds two numbers.", "parameters": PARAMETERS}}


def ask(model, **options):
    options = {"messages": QUESTION, "max_tokens": 64, "temperature": 0, "num_retries": 0} | options
    return litellm.completion(model, **PROVIDERS[model], **options)


def a_chat(model):
    answer = ask(model)
    assert answer.choices[0].message.content and answer.usage.completion_tokens > 0
    assert answer.choices[0].finish_reason in ("stop", "length")


def a_stream(model):
    parts = list(ask(model, stream=True))
    assert "".join(part.choices[0].delta.content or "" for part in parts)
    assert parts[-1].choices[0].finish_reason in ("stop", "length")


def a_call_and_its_result(model):
    question = [{"role": "user", "content": "Use the tool to add 2 and 3."}]
    # Ollama's route has no way to require a call.
    choice = {} if model.startswith("ollama") else {"tool_choice": "required"}
    message = ask(model, messages=question, tools=[ADD], **choice).choices[0].message
    assert message.tool_calls or not choice, message
    for call in message.tool_calls or []:
        assert call.function.name == "add" and set(json.loads(call.function.arguments)) == {"a", "b"}, call
    if message.tool_calls:
        results = [{"role": "tool", "tool_call_id": call.id, "content": "5"} for call in message.tool_calls]
        assert ask(model, messages=[*question, message.model_dump(), *results], tools=[ADD]).choices


def a_form(model):
    schema = {"type": "object", "properties": {"warm": {"type": "boolean"}}, "required": ["warm"], "additionalProperties": False}
    form = {"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": schema}}
    answer = ask(model, messages=[{"role": "user", "content": "Is red warm?"}], response_format=form)
    assert isinstance(json.loads(answer.choices[0].message.content)["warm"], bool), answer


def a_refusal(model):
    try:
        ask(model, messages=[{"role": "user", "content": "word " * 100_000}])
    except litellm.BadRequestError:
        return
    except litellm.APIConnectionError as error:
        # What litellm makes of any error of Ollama's.
        assert model.startswith("ollama") and "context" in str(error), error
        return
    raise AssertionError("it was accepted")


def main():
    failed = 0
    for model in PROVIDERS:
        for check in (a_chat, a_stream, a_call_and_its_result, a_form, a_refusal):
            label = f"{model}: {check.__name__.replace('_', ' ')}"
            try:
                check(model)
                print(f"ok     {label}", flush=True)
            except Exception:
                failed += 1
                print(f"FAILED {label}", flush=True)
                traceback.print_exc(file=sys.stdout)
    print(f"{failed} failed")
    sys.exit(failed > 0)


main()
