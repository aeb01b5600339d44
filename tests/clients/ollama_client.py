"""Tries a running server with the official `ollama` package.

    pip install ollama==0.6.3
    python tests/clients/ollama_client.py http://127.0.0.1:8080

One line per check. Works with any model: nothing is expected of what it says, only of how the API behaves.
"""

import json
import sys

from ollama import Client, ResponseError

client = Client(host=sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080")
MODEL = client.list().models[0].model
QUESTION = [{"role": "user", "content": "Name a colour."}]
SHORT = {"num_predict": 16, "temperature": 0}
CHECKS = []


def check(function):
    CHECKS.append(function)
    return function


def refused(status, call):
    try:
        call()
    except ResponseError as error:
        assert error.status_code == status and isinstance(error.error, str), f"{error.status_code} {error.error!r}"
    else:
        raise AssertionError("it was accepted")


@check
def models_are_listed_and_shown():
    listed = client.list().models[0]
    assert listed.model and listed.modified_at and listed.size >= 0
    shown = client.show(MODEL)
    assert "completion" in shown.capabilities and "tools" in shown.capabilities and shown.template
    architecture = shown.modelinfo["general.architecture"]
    assert shown.modelinfo[f"{architecture}.context_length"] > 0
    running = client.ps().models[0]
    assert running.expires_at and running.context_length > 0


@check
def the_version_is_told():
    assert client._client.get("/api/version").json()["version"].count(".") == 2
    assert client._client.get("/").text == "Ollama is running"


@check
def chat_streams_what_it_answers():
    whole = client.chat(MODEL, QUESTION, options=SHORT)
    assert whole.done and whole.done_reason in ("stop", "length") and whole.message.role == "assistant"
    assert 0 < whole.eval_count <= 16 and whole.prompt_eval_count > 0 and whole.total_duration > 0
    parts = list(client.chat(MODEL, QUESTION, options=SHORT, stream=True))
    assert "".join(part.message.content for part in parts) == whole.message.content
    assert parts[-1].done and not any(part.done for part in parts[:-1])
    assert parts[-1].eval_count == whole.eval_count


@check
def tools_may_be_called():
    def add(a: int, b: int) -> int:
        """Adds two numbers.

        Args:
          a: the first
          b: the second
        """
        return a + b

    question = [{"role": "user", "content": "Add 2 and 3 with the tool."}]
    answer = client.chat(MODEL, question, tools=[add], options={"num_predict": 64, "temperature": 0})
    for call in answer.message.tool_calls or []:
        assert call.function.name == "add" and isinstance(call.function.arguments, dict)
    call = {"function": {"name": "add", "arguments": {"a": 2, "b": 3}}}
    told = [*question, {"role": "assistant", "tool_calls": [call]}, {"role": "tool", "tool_name": "add", "content": "5"}]
    assert client.chat(MODEL, told, tools=[add], options=SHORT).done


@check
def an_answer_has_the_form_that_was_asked_for():
    schema = {"type": "object", "properties": {"warm": {"type": "boolean"}}, "required": ["warm"],
              "additionalProperties": False}
    options = {"num_predict": 64, "temperature": 0}
    answer = client.chat(MODEL, [{"role": "user", "content": "Is red a warm colour?"}], format=schema, options=options)
    assert isinstance(json.loads(answer.message.content)["warm"], bool)
    whole = client.generate(MODEL, "Reply in JSON with a key `colour`.", format="json", options={"num_predict": 200})
    if whole.done_reason == "stop":
        assert isinstance(json.loads(whole.response), dict)


@check
def texts_are_generated():
    whole = client.generate(MODEL, "Name a colour.", system="Be brief.", options=SHORT)
    assert whole.response and whole.done
    parts = list(client.generate(MODEL, "Once upon a time", raw=True, options=SHORT, stream=True))
    assert "".join(part.response for part in parts) and parts[-1].done


@check
def log_probabilities_come_with_the_text():
    answer = client.chat(MODEL, QUESTION, options=SHORT, logprobs=True, top_logprobs=2)
    assert answer.logprobs and all(token.logprob <= 0 and len(token.top_logprobs) == 2 for token in answer.logprobs)


@check
def texts_have_embeddings():
    several = client.embed(MODEL, ["The cat sat on the mat.", "Interest rates rose."])
    assert several.model == MODEL and len(several.embeddings) == 2 and several.prompt_eval_count > 5
    assert all(abs(sum(x * x for x in vector) - 1) < 1e-4 for vector in several.embeddings)
    assert list(client.embed(MODEL, "Interest rates rose.").embeddings[0]) == list(several.embeddings[1])
    assert list(client.embeddings(MODEL, "Interest rates rose.").embedding) == list(several.embeddings[1])
    assert len(client.embed(MODEL, "x", dimensions=8).embeddings[0]) == 8
    long = "word " * 20_000
    assert client.embed(MODEL, long, options={"num_ctx": 512}).prompt_eval_count > 500
    refused(400, lambda: client.embed(MODEL, long, truncate=False))


@check
def loading_and_unloading_are_answered():
    assert client.generate(MODEL).done_reason == "load"
    assert client.generate(MODEL, keep_alive=0).done_reason == "unload"
    assert client.chat(MODEL, QUESTION, options={"num_predict": 1}).done


@check
def one_model_is_served():
    assert client.pull(MODEL).status == "success"
    assert [part.status for part in client.pull(MODEL, stream=True)][-1] == "success"
    refused(404, lambda: client.pull("no-such-model"))
    refused(404, lambda: client.chat("no-such-model", QUESTION))
    refused(400, lambda: client.delete(MODEL))
    refused(400, lambda: client.copy(MODEL, "other"))


@check
def bad_requests_are_refused():
    refused(400, lambda: client.chat(MODEL, QUESTION, options={"temperature": -1}))
    refused(400, lambda: client.generate(MODEL, "x", suffix="y"))
    picture = [{"role": "user", "content": "See?", "images": [b"\x89PNG"]}]
    refused(400, lambda: client.chat(MODEL, picture))


@check
def typed_questions_are_answered():
    answer = client.systemone(MODEL, "The shop has been down since nine.", {
        "kind": {"type": "choice", "instructions": "What is it about?", "criteria": {"fault": "Something is broken",
                                                                                  "sale": "Somebody wants to buy"}},
        "urgent": {"type": "noul", "instructions": "Is it urgent?"},
        "grade": {"type": "score", "instructions": "How bad is it?", "criteria": ["fine", "bad", "very bad"]},
    })
    kind, urgent, grade = (answer.answers[name] for name in ("kind", "urgent", "grade"))
    assert kind.choice in ("fault", "sale") and abs(sum(kind.probabilities.values()) - 1) < 1e-3
    assert 0 <= urgent.noul <= 1 and 0 <= grade.score <= 2 and 0 <= grade.confidence <= 1
    assert answer.usage.input_tokens > 0


def main():
    failed = 0
    for function in CHECKS:
        name = function.__name__.replace("_", " ")
        try:
            function()
        except Exception as error:  # noqa: BLE001
            failed += 1
            print(f"FAILED {name}: {type(error).__name__}: {str(error)[:300]}", flush=True)
        else:
            print(f"ok     {name}", flush=True)
    print(f"{len(CHECKS) - failed} passed, {failed} failed")
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
