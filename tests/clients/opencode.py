"""Tries a running server with OpenCode: an agent without a person, in a folder of its own.

    npm install opencode-ai@1.18.33
    duet serve qwen2.5-coder-0.5b
    python tests/clients/opencode.py http://127.0.0.1:8080/v1

It is asked to write a file with its `write` tool, which is the only one that it has here: small models lose their way in
the prompt that it has otherwise. Checked is that it calls the tool, that the file is there, that the result goes back,
and that the turn ends; what is in the file is the model's affair, and so is whether it calls at all: it is asked up to
five times. The first start makes its database.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

URL = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080/v1"
MODEL = {"name": "default", "tool_call": True, "limit": {"context": 32768, "output": 256}}
OPTIONS = {"baseURL": URL, "apiKey": "none"}
CONFIG = {
    "autoupdate": False,
    "share": "disabled",
    # No other: nothing here leaves this machine.
    "enabled_providers": ["duet"],
    "model": "duet/default",
    "small_model": "duet/default",
    "provider": {"duet": {"npm": "@ai-sdk/openai-compatible", "name": "duet", "options": OPTIONS, "models": {"default": MODEL}}},
    "permission": {"*": "allow"},
    "agent": {"build": {"prompt": "You are a coding agent. Use a tool.", "temperature": 0.3, "tools": {"*": False, "write": True}}},
}
ATTEMPTS = 5
QUESTION = "Write the word hello into the file hello.txt with the write tool."


def main():
    for attempt in range(ATTEMPTS):
        checks, told = ask()
        if all(checks.values()):
            break
        print(f"       attempt {attempt + 1}: {', '.join(name for name, passed in checks.items() if not passed)}: failed", flush=True)
    for name, passed in checks.items():
        print("ok    " if passed else "FAILED", name)
    if not all(checks.values()):
        print(told[-4000:])
    sys.exit(not all(checks.values()))


def ask():
    with tempfile.TemporaryDirectory() as folder:
        config = pathlib.Path(folder, "opencode.json")
        config.write_text(json.dumps(CONFIG))
        quiet = {"OPENCODE_CONFIG": str(config), "OPENCODE_DISABLE_MODELS_FETCH": "1", "OPENCODE_DISABLE_AUTOUPDATE": "1"}
        done = subprocess.run(["opencode", "run", "--model", "duet/default", "--format", "json", QUESTION], cwd=folder, env=os.environ | quiet,
                              stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, text=True, timeout=900)
        written = pathlib.Path(folder, "hello.txt").exists()
    events = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    kinds = [event["type"] for event in events]
    calls = [event["part"] for event in events if event["type"] == "tool_use"]
    ends = [event["part"]["reason"] for event in events if event["type"] == "step_finish"]
    checks = {
        "it ends well": done.returncode == 0 and "error" not in kinds,
        "a call is understood": bool(calls) and calls[0]["tool"] == "write",
        "the tool has run": bool(calls) and calls[0]["state"]["status"] == "completed" and written,
        "its result goes back, and the turn ends": len(ends) > 1 and ends[-1] in ("stop", "length"),
    }
    return checks, done.stdout


main()
