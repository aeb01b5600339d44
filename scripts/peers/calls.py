"""Calls of tools, by servers of OpenAI's API that have the same model: calls.py WORKLOAD NAME=URL... [--limit N] [--shortest] [--choice CHOICE] [--from-text] [--show]

Asks each server for the call that answers each prompt of the file, greedily and one at a time, and prints how many answers
are valid, call the right functions, and call them with the right arguments, as `duet bench agents` judges them; behind that,
how many answers are the same as the first server's. The file's lines have `messages`, `tools` and `reference`, the right
calls as a list (or the text of one) of `name` and `arguments`; lines whose right answer is no call are left out. With --shortest
the first N are those whose prompts are the shortest; with --show the answers that only some have right are printed. A server
that does not hold its model to calls may write them as JSON in its text: with --from-text they count as calls, too.
"""

import argparse
import json
import sys
import time
import urllib.error
import urllib.request
from dataclasses import dataclass

TOKENS_MAX = 256
PATIENCE_S = 1200
TYPES = {
    "object": lambda value: isinstance(value, dict),
    "dict": lambda value: isinstance(value, dict),
    "array": lambda value: isinstance(value, list),
    "string": lambda value: isinstance(value, str),
    "integer": lambda value: is_number(value) and value == int(value),
    "number": lambda value: is_number(value),
    "float": lambda value: is_number(value),
    "boolean": lambda value: isinstance(value, bool),
    "null": lambda value: value is None,
}


@dataclass
class Task:
    messages: list
    tools: list
    calls: list

    def length(self):
        return len(json.dumps([self.messages, self.tools]))


@dataclass
class Answer:
    calls: list
    tokens: int
    seconds: float
    valid: bool = False
    functions: bool = False
    arguments: bool = False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("workload")
    parser.add_argument("servers", nargs="+", metavar="NAME=URL")
    parser.add_argument("--limit", type=int, default=50)
    parser.add_argument("--choice", default="required", choices=["required", "auto"])
    parser.add_argument("--shortest", action="store_true")
    parser.add_argument("--from-text", action="store_true")
    parser.add_argument("--show", action="store_true")
    arguments = parser.parse_args()
    tasks = read(arguments.workload)
    if arguments.shortest:
        tasks.sort(key=Task.length)
    tasks = tasks[: arguments.limit]
    answers = {}
    for server in arguments.servers:
        name, url = server.split("=", 1)
        answers[name] = []
        for number, task in enumerate(tasks, 1):
            print(f"{name}: {number} of {len(tasks)}", end="\r", file=sys.stderr)
            answers[name].append(judged(ask(url, task, arguments), task))
        print(file=sys.stderr)
    print(table(answers))
    if arguments.show:
        show(tasks, answers)


def read(file):
    tasks = []
    with open(file, encoding="utf-8") as lines:
        for line in lines:
            item = json.loads(line)
            calls = right_calls(item["reference"])
            if calls and item["tools"]:
                tasks.append(Task(item["messages"], item["tools"], calls))
    return tasks


def right_calls(reference):
    if isinstance(reference, str):
        try:
            reference = json.loads(reference)
        except ValueError:
            return []
    are_calls = isinstance(reference, list) and all(
        isinstance(call, dict) and isinstance(call.get("name"), str) and isinstance(call.get("arguments"), dict)
        for call in reference
    )
    return reference if are_calls else []


def ask(url, task, arguments):
    body = {
        "model": "default", "messages": task.messages, "tools": task.tools, "tool_choice": arguments.choice, "temperature": 0,
        "max_tokens": TOKENS_MAX,
    }
    request = urllib.request.Request(
        url.rstrip("/").removesuffix("/v1") + "/v1/chat/completions",
        json.dumps(body).encode(),
        {"Content-Type": "application/json"},
    )
    begun = time.monotonic()
    try:
        with urllib.request.urlopen(request, timeout=PATIENCE_S) as response:
            answer = json.load(response)
    except urllib.error.HTTPError as error:
        print(f"\n{error.code}: {error.read(300)!r}", file=sys.stderr)
        return Answer([], 0, time.monotonic() - begun)
    message = answer["choices"][0]["message"]
    calls = [call["function"] for call in message.get("tool_calls") or []]
    if arguments.from_text and not calls:
        calls = calls_in(message.get("content") or "")
    return Answer(
        [(call["name"], parsed(call["arguments"])) for call in calls],
        answer["usage"]["completion_tokens"],
        time.monotonic() - begun,
    )


def calls_in(text):
    """Objects with a name and arguments that stand in a text, in their order."""
    calls, at = [], text.find("{")
    while at >= 0:
        try:
            value, at = json.JSONDecoder().raw_decode(text, at)
        except ValueError:
            value, at = None, at + 1
        if isinstance(value, dict) and isinstance(value.get("name"), str) and "arguments" in value:
            calls.append(value)
        at = text.find("{", at)
    return calls


def parsed(arguments):
    """Arguments come as JSON, or as the text of it."""
    if not isinstance(arguments, str):
        return arguments
    try:
        return json.loads(arguments)
    except ValueError:
        return arguments


def judged(answer, task):
    schemas = {tool["function"]["name"]: tool["function"].get("parameters") or {} for tool in task.tools}
    fitting = [name in schemas and fits(arguments, schemas[name]) for name, arguments in answer.calls]
    answer.valid = bool(answer.calls) and all(fitting)
    made = sorted(name for name, _ in answer.calls)
    answer.functions = made == sorted(call["name"] for call in task.calls)
    answer.arguments = answer.functions and all(
        any(name == call["name"] and alike(arguments, call["arguments"]) for name, arguments in answer.calls)
        for call in task.calls
    )
    return answer


def is_number(value):
    return isinstance(value, (int, float)) and not isinstance(value, bool)


def fits(value, schema):
    """Whether a value fits what schemas of functions are made of: types, enumerations, required properties, items."""
    if not isinstance(schema, dict):
        return True
    kinds = schema.get("type", [])
    kinds = [kinds] if isinstance(kinds, str) else kinds
    if kinds and not any(TYPES.get(kind, lambda _: True)(value) for kind in kinds):
        return False
    if "enum" in schema and value not in schema["enum"]:
        return False
    if isinstance(value, dict):
        properties = schema.get("properties") or {}
        whole = all(name in value for name in schema.get("required") or [])
        return whole and all(fits(inside, properties.get(name)) for name, inside in value.items())
    if isinstance(value, list):
        return all(fits(item, schema.get("items")) for item in value)
    return True


def alike(given, right):
    """Numbers by their value, texts but for case and blanks around; what the right ones do not mention may be there."""
    if isinstance(right, dict) and isinstance(given, dict):
        return all(name in given and alike(given[name], value) for name, value in right.items())
    if isinstance(right, list) and isinstance(given, list):
        return len(given) == len(right) and all(alike(*pair) for pair in zip(given, right))
    if isinstance(right, str) and isinstance(given, str):
        return given.strip().lower() == right.strip().lower()
    if is_number(right) and is_number(given):
        return float(given) == float(right)
    return type(given) is type(right) and given == right


def table(answers):
    first = next(iter(answers.values()))
    rows = ["| | n | valid | right functions | right arguments | as the first | tokens | seconds, median |", "| --- " + "| ---: " * 7 + "|"]
    for name, given in answers.items():
        share = lambda of: f"{100 * sum(of) / len(of):.1f} %"
        same = sum(one.calls == other.calls for one, other in zip(given, first))
        seconds = sorted(one.seconds for one in given)[len(given) // 2]
        rows.append(
            f"| {name} | {len(given)} | {share([one.valid for one in given])} | {share([one.functions for one in given])} "
            f"| {share([one.arguments for one in given])} | {same} | {sum(one.tokens for one in given)} | {seconds:.1f} |"
        )
    return "\n".join(rows)


def show(tasks, answers):
    for index, task in enumerate(tasks):
        given = {name: of[index] for name, of in answers.items()}
        if len({(one.functions, one.arguments) for one in given.values()}) > 1:
            print(f"\n{index}: {task.messages[-1]['content'][:200]!r}\n  right: {json.dumps(task.calls)}")
            for name, one in given.items():
                print(f"  {name}: {json.dumps(one.calls)}")


if __name__ == "__main__":
    main()
