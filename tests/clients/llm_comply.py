"""Tries a running server with `llm-comply`, which holds answers against the published descriptions of the APIs.

    pip install llm-comply==0.5.0
    duet serve qwen2.5-coder-0.5b
    python tests/clients/llm_comply.py http://127.0.0.1:8080

One line per check; exits non-zero if any failed that is not expected to. Those that are expected to fail ask for what
this server means to be otherwise: `NOT_HERE` says why.
"""

import json
import os
import subprocess
import sys

URL = sys.argv[1] if len(sys.argv) > 1 else "http://127.0.0.1:8080"
# The package has the name of this file: its folder must not come first.
ENVIRONMENT = os.environ | {"PYTHONPATH": os.environ.get("PYTHONPATH", "")}
FORMATS = {
    "openai-chat": [],
    "open-responses": [],
    "anthropic": ["--auth-header", "x-api-key", "--no-bearer", "-H", "anthropic-version:2023-06-01"],
}
NOT_HERE = {
    ("openai-chat", "chat-image-input"): "the model reads text only",
    ("open-responses", "image-input"): "the model reads text only",
    ("anthropic", "anth-image-input"): "the model reads text only",
    ("openai-chat", "chat-error-handling"): "a request without a model is for the one that is served",
    ("open-responses", "error-handling"): "a request without a model is for the one that is served",
}


def results(form, options):
    command = [sys.executable, "-m", "llm_comply.cli", "--format", form, "-u", f"{URL}/v1", "-k", "none", "-m", "default"]
    told = subprocess.run(command + options + ["--json"], env=ENVIRONMENT, stdout=subprocess.PIPE, text=True, cwd="/").stdout
    return json.loads(told[told.index("{") :])["results"]


def main():
    failed = 0
    for form, options in FORMATS.items():
        for result in results(form, options):
            name, status = f"{form}: {result['name']}", result["status"]
            expected = NOT_HERE.get((form, result["id"]))
            if status in ("passed", "warning"):
                print(f"ok      {name}", flush=True)
            elif status == "skipped" or expected:
                print(f"skipped {name}: {expected or 'not for this model'}", flush=True)
            else:
                failed += 1
                print(f"FAILED  {name}: {'; '.join(map(str, result.get('errors', [])))[:600]}", flush=True)
    print(f"{failed} failed")
    sys.exit(failed > 0)


main()
