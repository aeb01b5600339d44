#!/usr/bin/env python3
"""Decoding with drafts from text: duet beside llama.cpp's server, each with its drafts on and off.

    lookup.py --duet BINARY --model FILE --llama-bin DIR --workload FILE [FILE...]
              [--limit 16] [--max-tokens 128] [--threads 2] [--spec ngram-simple,ngram-map-k,ngram-mod,ngram-cache]

All servers run at once, each with the same threads, and are asked one after the other: every prompt goes to each of
them, another one first each time, so that a machine whose speed drifts does so for all. `ngram-cache` is what
llama.cpp's own llama-lookup does, inside its server. stdout gets a JSON line for each file and server: milliseconds a
token between the first and the last one as the client sees them (mean over all tokens), `speedup` over the same
server without drafts and `over_llama` over llama.cpp's without drafts, each with its quartiles over prompts, and how
many answers are those of the same server without drafts. Needs the standard library only.
"""

import argparse
import contextlib
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time
import urllib.request

from load import free_port, stop, wait_until_healthy


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--duet", required=True, help="the duet binary")
    parser.add_argument("--model", required=True, help="GGUF file that all of them read")
    parser.add_argument("--llama-bin", required=True, help="folder of llama-server")
    parser.add_argument("--workload", required=True, nargs="+", help="prompts, one JSON object a line")
    parser.add_argument("--limit", type=int, default=16, help="prompts of each file")
    parser.add_argument("--max-tokens", type=int, default=128)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--spec", default="ngram-simple,ngram-map-k,ngram-mod,ngram-cache")
    arguments = parser.parse_args()
    with contextlib.ExitStack() as stack:
        servers = {name: start(stack, name, command, environment)
                   for name, command, environment in commands(arguments)}
        for path in map(pathlib.Path, arguments.workload):
            for line in measure(arguments, servers, path):
                print(json.dumps(line), flush=True)


def commands(arguments):
    threads = str(arguments.threads)
    for mode in ("off", "on"):
        command = [arguments.duet, "serve", arguments.model, "--threads", threads, "--speculate", mode,
                   "--history", "off"]
        yield f"duet {mode}", command, dict(os.environ)
    folder = pathlib.Path(arguments.llama_bin).resolve()
    library_path = os.pathsep.join(filter(None, [str(folder), os.environ.get("LD_LIBRARY_PATH")]))
    environment = {**os.environ, "LD_LIBRARY_PATH": library_path}
    llama = [str(folder / "llama-server"), "-m", arguments.model, "-np", "1", "-c", "8192", "-t", threads, "-tb", threads]
    yield "llama off", llama, environment
    for spec in filter(None, arguments.spec.split(",")):
        yield f"llama {spec}", [*llama, "--spec-type", spec], environment


def start(stack, name, command, environment):
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    print(f"lookup.py: starting {name}", file=sys.stderr)
    server = subprocess.Popen([*command, "--host", "127.0.0.1", "--port", str(port)], env=environment,
                              stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True)
    stack.callback(stop, server)
    wait_until_healthy(name, server, url)
    return url


def measure(arguments, servers, path):
    prompts = [json.loads(line)["messages"] for line in path.read_text().splitlines()[:arguments.limit]]
    answers = {name: [] for name in servers}
    names = list(servers)
    for turn, messages in enumerate(prompts):
        print(f"lookup.py: {path.stem}, prompt {turn + 1} of {len(prompts)}", file=sys.stderr)
        first = turn % len(names)
        for name in names[first:] + names[:first]:
            answers[name].append(ask(servers[name], messages, arguments.max_tokens))
    # An answer of few tokens has no speed.
    long = [turn for turn in range(len(prompts)) if all(answers[name][turn]["tokens"] > 8 for name in names)]
    for name in names:
        plain = answers[name.split()[0] + " off"]
        own, same = answers[name], 0
        for turn in long:
            same += own[turn]["text"] == plain[turn]["text"]
        yield {"workload": path.stem, "server": name, "n": len(long), "same_text": same,
               "ms_per_token": mean(own, long),
               "speedup": ratio(plain, own, long), "over_llama": ratio(answers["llama off"], own, long)}


def ask(url, messages, max_tokens):
    body = {"model": "default", "messages": messages, "max_tokens": max_tokens, "temperature": 0, "stream": True,
            "stream_options": {"include_usage": True}, "cache_prompt": False}
    request = urllib.request.Request(f"{url}/v1/chat/completions", json.dumps(body).encode(),
                                     {"content-type": "application/json"})
    first = last = None
    text, tokens = "", 0
    with urllib.request.urlopen(request, timeout=600) as response:
        for line in response:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[len(b"data: "):])
            tokens = (event.get("usage") or {}).get("completion_tokens", tokens)
            for choice in event.get("choices", []):
                content = choice["delta"].get("content")
                if content:
                    text += content
                    last = time.monotonic()
                    first = first or last
    return {"text": text, "tokens": tokens, "ms": 1e3 * ((last or 0) - (first or 0)) / max(1, tokens - 1)}


def mean(answers, turns):
    tokens = sum(answers[turn]["tokens"] for turn in turns)
    return sum(answers[turn]["ms"] * answers[turn]["tokens"] for turn in turns) / max(1, tokens)


def ratio(slow, fast, turns):
    ratios = sorted(slow[turn]["ms"] / fast[turn]["ms"] for turn in turns if fast[turn]["ms"] > 0)
    if len(ratios) < 2:
        return None
    low, middle, high = statistics.quantiles(ratios, n=4)
    return {"all": mean(slow, turns) / mean(fast, turns), "quartiles": [low, middle, high]}


if __name__ == "__main__":
    main()
