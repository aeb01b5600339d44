"""Tries a running server with `langchain-ollama`.

    pip install langchain-ollama==1.1.0
    python tests/clients/langchain_ollama.py http://127.0.0.1:8080

One line per check; nothing is expected of what the model says.
"""

import sys

# This file is called like the package: its folder must not come first.
sys.path = [folder for folder in sys.path if not folder.endswith("tests/clients")]

from langchain_ollama import ChatOllama, OllamaLLM  # noqa: E402

URL = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080"
SHORT = {"base_url": URL, "model": "default", "num_predict": 16, "temperature": 0}


def main():
    chat = ChatOllama(**SHORT)
    answer = chat.invoke("Name a colour.")
    assert isinstance(answer.content, str) and answer.usage_metadata["output_tokens"] > 0
    assert answer.response_metadata["done_reason"] in ("stop", "length")
    print("ok     a chat is answered")

    parts = list(chat.stream("Name a colour."))
    assert "".join(part.content for part in parts) == answer.content
    print("ok     a chat is streamed")

    def add(a: int, b: int) -> int:
        """Adds two numbers."""
        return a + b

    called = ChatOllama(**SHORT | {"num_predict": 64}).bind_tools([add]).invoke("Add 2 and 3 with the tool.")
    assert all(call["name"] == "add" and isinstance(call["args"], dict) for call in called.tool_calls)
    print(f"ok     tools are offered ({len(called.tool_calls)} calls)")

    schema = {"title": "Warm", "type": "object", "properties": {"warm": {"type": "boolean"}}, "required": ["warm"]}
    structured = ChatOllama(**SHORT | {"num_predict": 64}).with_structured_output(schema, method="json_schema")
    assert isinstance(structured.invoke("Is red a warm colour?")["warm"], bool)
    print("ok     an answer has the form that was asked for")

    assert OllamaLLM(**SHORT).invoke("Name a colour.")
    print("ok     a text is generated")

    models = ChatOllama(**SHORT)._client.list().models
    ChatOllama(**SHORT | {"model": models[0].model}, validate_model_on_init=True)
    print("ok     the model is found in the list")


if __name__ == "__main__":
    main()
