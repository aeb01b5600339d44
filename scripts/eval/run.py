#!/usr/bin/env python3
"""Evaluates servers by lm-eval, and compares what they answer.

    run.py [--limit N] [--shortest] [--tasks TASKS] [--ways WAYS] [--out FILE] NAME=URL [NAME=URL]

For each server, by text completions and by chat: how many items of each task are right, and how long they took. Where the
server tells log probabilities of prompts, also which of given answers is the likeliest. Of two servers, how many answers are
the same, item by item; and of each item whose answers differ, how many nats are between the two likeliest tokens where they
part. `lm-eval.sh` installs what this needs, and starts the servers.
"""

import argparse
import json
import os
import pathlib
import sys
import time
import urllib.error
import urllib.request

import margins

TASKS = ["boolq", "hellaswag", "ruler"]
LIKELIHOOD = ["boolq_likelihood", "hellaswag_likelihood"]
# lm-eval's names of clients, where they ask, and what they are asked for.
WAYS = {
    "completions": ("local-completions", "/v1/completions", TASKS),
    "chat": ("local-chat-completions", "/v1/chat/completions", TASKS),
    "likelihood": ("local-completions", "/v1/completions", LIKELIHOOD),
}
# As long as the tasks' answers become.
MOST_TOKENS = 64


def scores_prompts(url):
    """Whether a server tells how likely a prompt is, and how it is split."""
    body = {"prompt": "One two", "max_tokens": 1, "echo": True, "logprobs": 1}
    request = urllib.request.Request(
        url + "/v1/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    try:
        with urllib.request.urlopen(request, timeout=60) as reply:
            scored = json.load(reply)["choices"][0]["logprobs"]["token_logprobs"]
        with urllib.request.urlopen(url + "/tokenizer_info", timeout=60) as reply:
            json.load(reply)
    except (urllib.error.HTTPError, KeyError, TypeError):
        return False
    return len(scored) > 1 and scored[0] is None


def evaluate(url, way, task, limit, manager):
    """The answers to a task's items, whether each is right, and the seconds that all took."""
    import lm_eval

    client, route, _ = WAYS[way]
    arguments = {
        "model": "default",
        "base_url": url + route,
        # The server's own, where prompts have to be split: nothing is fetched.
        "tokenizer_backend": "remote" if way == "likelihood" else "none",
        "max_length": 4096,
        "timeout": 1200,
    }
    began = time.monotonic()
    done = lm_eval.simple_evaluate(
        model=client,
        model_args=arguments,
        tasks=["duet_" + task],
        task_manager=manager,
        limit=limit,
        log_samples=True,
        apply_chat_template=way == "chat",
        bootstrap_iters=0,
    )
    seconds = time.monotonic() - began
    samples = sorted(done["samples"]["duet_" + task], key=lambda sample: sample["doc_id"])
    return {
        "seconds": seconds,
        "right": [float(sample["acc"]) for sample in samples],
        "answers": [answer_of(sample) for sample in samples],
        "prompts": [sample["doc"]["messages"][-1]["content"] for sample in samples],
    }


def answer_of(sample):
    """What was answered, or which of the choices was the likeliest."""
    answers = sample["filtered_resps"]
    if isinstance(answers[0], str):
        return answers[0].strip()
    likelihoods = [likelihood for likelihood, _ in answers]
    return likelihoods.index(max(likelihoods))


def row(way, task, results):
    """A line of the table."""
    accuracies = [f"{100 * sum(result['right']) / len(result['right']):.1f} %" for result in results]
    seconds = [f"{result['seconds']:.0f}" for result in results]
    cells = [way, task, str(len(results[0]["answers"])), *accuracies]
    if len(results) == 2:
        pairs = list(zip(results[0]["answers"], results[1]["answers"], strict=True))
        counted = list(zip(results[0]["right"], results[1]["right"], strict=True))
        same = [sum(a == b for a, b in both) for both in (pairs, counted)]
        cells += [f"{count} of {len(pairs)}" for count in same]
    return "| " + " | ".join(cells + seconds) + " |"


def differences(servers, way, results):
    """A line for each item whose answers differ."""
    names, urls = list(servers), list(servers.values())
    answers = zip(*(result["answers"] for result in results), strict=True)
    for item, (prompt, said) in enumerate(zip(results[0]["prompts"], answers, strict=True)):
        if len(set(said)) > 1:
            parted = margins.parting(urls, way, prompt, MOST_TOKENS) or []
            sure = (f"{name} {token!r} by {nats:.3f}" for name, (token, nats) in zip(names, parted))
            yield f"item {item}: " + (", ".join(sure) or "the same words when asked again")


def header(names):
    """The table's first two lines."""
    agreement = ["same words", "both right or wrong"] if len(names) == 2 else []
    titles = ["by", "task", "items", *names, *agreement, *(f"{name}, s" for name in names)]
    return ["| " + " | ".join(titles) + " |", "| --- | --- |" + " ---: |" * (len(titles) - 2)]


def compared(servers, limit, ways, tasks):
    """The lines of the table, as they come."""
    from lm_eval.tasks import TaskManager

    folder = pathlib.Path(__file__).parent / "tasks"
    manager = TaskManager(include_path=str(folder), include_defaults=False)
    parted = []
    yield from header(list(servers))
    for way in ways:
        asked = servers
        if way == "likelihood":
            asked = {name: url for name, url in servers.items() if scores_prompts(url)}
        if asked and len(asked) < len(servers):
            yield from ["", "The others do not tell how likely prompts are:", "", *header(list(asked))]
        for task in WAYS[way][2]:
            if asked and task.removesuffix("_likelihood") in tasks:
                results = [evaluate(url, way, task, limit, manager) for url in asked.values()]
                yield row(way, task, results)
                if len(results) == 2 and way != "likelihood":
                    parted += (f"- {way}, {task}, {line}" for line in differences(asked, way, results))
    if parted:
        yield from ["", "Where answers part, the nats from the likeliest token to the next:", "", *parted]


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=int, help="items of each task; all without")
    parser.add_argument("--shortest", action="store_true", help="the shortest items first")
    parser.add_argument("--tasks", default=",".join(TASKS), help="some of " + ", ".join(TASKS))
    parser.add_argument("--ways", default=",".join(WAYS), help="some of " + ", ".join(WAYS))
    parser.add_argument("--out", type=pathlib.Path, help="a file for the table")
    parser.add_argument("servers", nargs="+", metavar="NAME=URL")
    asked = parser.parse_args()
    if asked.shortest:
        os.environ["DUET_EVAL_SHORTEST"] = "1"
    servers = dict(server.split("=", 1) for server in asked.servers)
    lines = []
    for line in compared(servers, asked.limit, asked.ways.split(","), asked.tasks.split(",")):
        print(line, flush=True)
        lines.append(line)
        if asked.out:
            asked.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
