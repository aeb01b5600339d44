"""Tries a running server with Codex: an agent without a person, in a folder of its own.

    npm install @openai/codex@0.169.0
    duet serve qwen2.5-coder-0.5b
    python tests/clients/codex.py http://127.0.0.1:8080/v1

It is asked to run a command that writes a file, with the prompt and the tools that it always has: some six thousand tokens,
which take minutes with a debug build. Checked is the protocol: its requests are taken, a call is understood, the tool's
result goes back, the turn ends, and it exits with 0. It draws its answers, and a model this small often talks instead of
calling, so it is asked up to six times for the call; from the second on most of the prompt is kept. Whether the file is written is told and not checked: half a billion
weights rarely fill in this tool's fields as it wants them.
"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile

URL = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080/v1"
CONFIG = f"""
model = "default"
model_provider = "duet"
approval_policy = "never"
sandbox_mode = "danger-full-access"
[model_providers.duet]
name = "duet"
base_url = "{URL}"
wire_api = "responses"
requires_openai_auth = false
request_max_retries = 0
stream_max_retries = 0
"""
ATTEMPTS = 6
QUESTION = "Run the shell command: echo hello > hello.txt"


def main():
    with tempfile.TemporaryDirectory() as folder:
        for attempt in range(ATTEMPTS):
            checks, about, told = ask(folder)
            print(f"       attempt {attempt + 1}: {about}", flush=True)
            if not (checks["it exits with 0"] and checks["the turn ends"]) or checks["a call is understood"]:
                break
    for name, passed in checks.items():
        print("ok    " if passed else "FAILED", name)
    if not all(checks.values()):
        print(told)
    sys.exit(not all(checks.values()))


def ask(folder):
    with tempfile.TemporaryDirectory() as home:
        pathlib.Path(home, "config.toml").write_text(CONFIG)
        command = ["codex", "exec", "--skip-git-repo-check", "--json", QUESTION]
        done = subprocess.run(command, cwd=folder, env=os.environ | {"CODEX_HOME": home}, stdin=subprocess.DEVNULL,
                              stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, timeout=900)
        written = pathlib.Path(folder, "hello.txt").exists()
        # What it said and was told, as it keeps it.
        items = [json.loads(line)["payload"] for path in pathlib.Path(home).rglob("sessions/**/*.jsonl")
                 for line in path.read_text().splitlines() if '"response_item"' in line]
    kinds = [json.loads(line)["type"] for line in done.stdout.splitlines() if line.startswith("{")]
    calls = [item["call_id"] for item in items if item["type"] == "function_call"]
    results = [item["call_id"] for item in items if item["type"] == "function_call_output"]
    checks = {
        "it exits with 0": done.returncode == 0,
        "a call is understood": bool(calls),
        "its result goes back": bool(calls) and calls == results,
        "the turn ends": "turn.completed" in kinds and "turn.failed" not in kinds,
    }
    about = f"{len(calls)} calls; the file {'was' if written else 'was not'} written"
    return checks, about, done.stdout[-4000:] + done.stderr[-2000:]


main()
