#!/usr/bin/env python3
"""Golden chat prompts from Jinja2, for crates/model/tests/template_golden.rs.

    templates.py --out crates/model/tests/fixtures/templates.json [--model GGUF]

Renders the templates in crates/model/tests/fixtures/templates/*.jinja and the built-in ones with the settings of Hugging
Face's apply_chat_template. With --model, writes smollm2.jinja there first, from the file's metadata.

Needs: pip install jinja2, and gguf for --model.
"""
import argparse
import datetime
import json
from pathlib import Path

from jinja2 import nodes
from jinja2.exceptions import TemplateError
from jinja2.ext import Extension, loopcontrols
from jinja2.sandbox import ImmutableSandboxedEnvironment

NOW = datetime.datetime(2026, 3, 1, 9, 5, 7, tzinfo=datetime.timezone.utc)

TOOLS = [{
    "type": "function",
    "function": {
        "name": "get_weather",
        "description": "The weather <now> & \"soon\" in a città",
        "parameters": {
            "type": "object",
            "properties": {"city": {"type": "string", "enum": ["Zürich", "Bern"]}, "days": {"type": "integer", "default": 1},
                           "exact": {"type": "boolean", "default": True}, "unit": {"type": ["string", "null"], "default": None}},
            "required": ["city"],
        },
    },
}]

CALL = {"type": "function", "id": "call_1",
        "function": {"name": "get_weather", "arguments": {"city": "Zürich", "days": 2, "exact": False, "unit": None, "scale": 0.5}}}


def said(role, content, **rest):
    return {"role": role, "content": content, **rest}


CONVERSATIONS = {
    "one": [said("user", "Hello!")],
    "system": [said("system", "Be brief."), said("user", "What is 2 < 3 && \"x\"?\n  Indented.")],
    "turns": [said("user", " Hi "), said("assistant", "Hello there.\n"), said("user", "And?"), said("assistant", "Nothing."),
              said("user", "{{ not a template }} {% raw %} é 你好 😀 <|im_end|>")],
    "thinking": [said("user", "Think."), said("assistant", "<think>\nLong thoughts.\n</think>\n\nAnswer."), said("user", "Again.")],
    "tools": [said("system", "Use tools."), said("user", "Weather?"), said("assistant", "", tool_calls=[CALL]),
              said("tool", "{\"sun\": true}", name="get_weather", tool_call_id="call_1"), said("user", "Thanks.")],
    "two results": [said("user", "Weather?"), said("assistant", "Let me see.", tool_calls=[CALL, CALL]),
                    said("tool", "one"), said("tool", "two")],
    "out of order": [said("assistant", "I begin."), said("user", "No.")],
    "twice": [said("user", "One."), said("user", "Two.")],
    "empty": [],
}


class Generation(Extension):
    """`{% generation %}` marks what the assistant wrote, for training; it renders as what it holds."""
    tags = {"generation"}

    def parse(self, parser):
        line = next(parser.stream).lineno
        body = parser.parse_statements(["name:endgeneration"], drop_needle=True)
        return nodes.CallBlock(self.call_method("_body"), [], [], body).set_lineno(line)

    def _body(self, caller):
        return caller()


class Raised(Exception):
    pass


def environment():
    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, Generation])

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    def raise_exception(message):
        raise Raised(message)

    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = NOW.strftime
    return env


def render(template, messages, tools, generate):
    try:
        text = template.render(messages=messages, tools=tools, documents=None, add_generation_prompt=generate,
                               bos_token="<s>", eos_token="</s>")
        return {"text": text}
    except Raised as error:
        return {"raised": str(error)}
    except (TemplateError, TypeError) as error:
        return {"failed": type(error).__name__}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True)
    parser.add_argument("--model")
    arguments = parser.parse_args()
    out = Path(arguments.out)
    folder = out.parent / "templates"
    if arguments.model:
        from gguf import GGUFReader

        source = GGUFReader(arguments.model).fields["tokenizer.chat_template"].contents()
        (folder / "smollm2.jinja").write_text(source)

    cases = []
    built_in = out.parents[2] / "src" / "template"
    for path in sorted([*folder.glob("*.jinja"), *built_in.glob("*.jinja")]):
        template = environment().from_string(path.read_text())
        for name, messages in CONVERSATIONS.items():
            for tools in [None, TOOLS] if "tool" in name or name == "one" else [None]:
                for generate in [True, False]:
                    cases.append({"template": path.stem, "conversation": name, "tools": tools is not None, "generate": generate,
                                  **render(template, messages, tools, generate)})
    fixture = {"now": int(NOW.timestamp()), "tools": TOOLS, "conversations": CONVERSATIONS, "cases": cases}
    text = json.dumps(fixture, ensure_ascii=False, separators=(",", ":")).replace('{"template":', '\n{"template":')
    out.write_text(text + "\n")
    failed = [case for case in cases if "failed" in case]
    print(f"{out}: {len(cases)} cases, {len(failed)} failed in Jinja2, {len(text)} bytes")
    for case in failed:
        print(case)


if __name__ == "__main__":
    main()
