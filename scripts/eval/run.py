#!/usr/bin/env python3
"""Evaluates servers by lm-eval, and compares what they answer: run.py [--limit N] [--tasks TASKS] [--ways WAYS] [--out FILE] NAME=URL [NAME=URL]

For each server, by text completions and by chat: how many items of each task are right, and how long they took. Where the
server tells log probabilities of prompts, also which of given answers is the likeliest. Of two servers, how many answers are
the same, item by item. `lm-eval.sh` installs what this needs, and starts the servers.
"""

import argparse
import json
import pathlib
import sys
import time
import urllib.error
import urllib.request

TASKS = ["boolq", "hellaswag", "ruler"]
LIKELIHOOD = ["boolq_likelihood", "hellaswag_likelihood"]
# lm-eval's names of clients, where they ask, and what they are asked for.
WAYS = {
    "completions": ("local-completions", "/v1/completions", TASKS),
    "chat": ("local-chat-completions", "/v1/chat/completions", TASKS),
    "likelihood": ("local-completions", "/v1/completions", LIKELIHOOD),
}


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
    yield from header(list(servers))
    for way in ways:
        asked = servers
        if way == "likelihood":
            asked = {name: url for name, url in servers.items() if scores_prompts(url)}
        if asked and len(asked) < len(servers):
            yield from ["", "The others do not tell how likely prompts are:", "", *header(list(asked))]
        for task in WAYS[way][2]:
            if asked and task.removesuffix("_likelihood") in tasks:
                yield row(way, task, [evaluate(url, way, task, limit, manager) for url in asked.values()])


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--limit", type=int, help="items of each task; all without")
    parser.add_argument("--tasks", default=",".join(TASKS), help="some of " + ", ".join(TASKS))
    parser.add_argument("--ways", default=",".join(WAYS), help="some of " + ", ".join(WAYS))
    parser.add_argument("--out", type=pathlib.Path, help="a file for the table")
    parser.add_argument("servers", nargs="+", metavar="NAME=URL")
    asked = parser.parse_args()
    servers = dict(server.split("=", 1) for server in asked.servers)
    lines = []
    for line in compared(servers, asked.limit, asked.ways.split(","), asked.tasks.split(",")):
        print(line, flush=True)
        lines.append(line)
        if asked.out:
            asked.out.write_text("\n".join(lines) + "\n", encoding="utf-8")


if __name__ == "__main__":
    sys.exit(main())
