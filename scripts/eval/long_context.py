#!/usr/bin/env python3
"""Long conversations, plain and through all that happens to their keys and values.

    long_context.py --duet PROGRAM --model MODEL --text FILE [--lengths 2048,8192,32768] [--kv f16,int8] [--seed N]
                    [--ruler FILE --items N] [--against URL] [--threads N] [--memory SHARE]

Numbers are hidden in a long text (`needles.py`) and asked for in three turns. For each format of keys and
values, one server reads every conversation from its start and goes on with the prefix that it keeps. Another,
whose memory has room for the longest alone, reads the first two turns at once in the background while short
requests of a person preempt it; and goes on with the third after the other conversations have sent this one's
keys and values to disk, and they came back. The answers have to be the same, token by token and in the log
probability of each. With --memory the other server has that share of the longest conversation only: for a
model some of whose layers see a window, whose conversations are then kept without what windows have passed.

Prints, for each format and conversation: the tokens of its prompt; how many of the three answers are right;
whether each turn was kept for the next; how often its reading was preempted, and whether the second answer is the
same then; whether it came from disk, and whether the third answer is the same. Of --against, another server of
OpenAI's API with the same model: how many answers are right, and how many have the same words. Exits with 1 if any
answer differs within a format, if nothing was kept, or if nothing was preempted or came from disk. Needs the
standard library only.
"""

import argparse
import concurrent.futures
import dataclasses
import json
import pathlib
import re
import signal
import subprocess
import sys
import tempfile
import time
import urllib.request

import needles

ANSWER = 48
# Between a person's requests while a prompt is read in the background, in seconds; and how many there are at most.
PAUSE = 1.0
PERSONS_MOST = 20
# Tokens of memory beside the longest conversation, for a person's requests.
BESIDE = 768


@dataclasses.dataclass
class Answer:
    text: str
    # Tokens with their log probabilities.
    tokens: list
    prompt: int
    # Of the prompt's tokens, those whose keys and values were kept.
    kept: int

    def same(self, other):
        return (self.text, self.tokens) == (other.text, other.tokens)


@dataclasses.dataclass
class Otherwise:
    """What a conversation was like when it was preempted, and when it came from disk."""

    preemptions: int
    same_preempted: bool
    from_disk: bool
    same_from_disk: bool

    def is_well(self):
        return self.preemptions > 0 and self.same_preempted and self.from_disk and self.same_from_disk


class Duet:
    """A server of ours while the block runs."""

    def __init__(self, asked, *options):
        self.command = [asked.duet, "serve", asked.model, "--port", "0", "--history", "off", *options]
        if asked.threads:
            self.command += ["--threads", str(asked.threads)]

    def __enter__(self):
        self.log = tempfile.NamedTemporaryFile("w+", suffix=".log")
        self.process = subprocess.Popen(self.command, stdin=subprocess.DEVNULL, stderr=self.log)
        while self.process.poll() is None:
            if found := re.search(r"is served at (http\S+)", pathlib.Path(self.log.name).read_text()):
                self.url = found.group(1).removesuffix("/v1")
                return self
            time.sleep(0.2)
        sys.exit(pathlib.Path(self.log.name).read_text())

    def __exit__(self, *_):
        self.process.kill()
        self.process.wait()

    def metric(self, name):
        with urllib.request.urlopen(self.url + "/metrics") as reply:
            lines = (line.rsplit(" ", 1) for line in reply.read().decode().splitlines())
            return next(int(value) for key, value in lines if key == name)


def post(url, route, body):
    request = urllib.request.Request(url + route, json.dumps(body).encode(), {"Content-Type": "application/json"})
    with urllib.request.urlopen(request, timeout=3600) as reply:
        return json.load(reply)


def answer(url, questions, answers, **options):
    """The answer after these answers."""
    messages = []
    for question, said in zip(questions, answers):
        messages += [{"role": "user", "content": question}, {"role": "assistant", "content": said}]
    messages.append({"role": "user", "content": questions[len(answers)]})
    body = {"model": "default", "messages": messages, "temperature": 0, "max_tokens": ANSWER, "logprobs": True}
    reply = post(url, "/v1/chat/completions", body | options)
    choice = reply["choices"][0]
    tokens = [(step["token"], step["logprob"]) for step in choice["logprobs"]["content"]]
    usage = reply["usage"]
    kept = (usage.get("prompt_tokens_details") or {}).get("cached_tokens", 0)
    return Answer(choice["message"]["content"].strip(), tokens, usage["prompt_tokens"], kept)


def in_turns(url, conversation):
    """The answers of a server that reads each turn when it comes."""
    found = []
    while len(found) < len(conversation.questions):
        found.append(answer(url, conversation.questions, [answer.text for answer in found]))
    return found


def preempted(server, conversation, answers):
    """The second answer, read from the start in the background while a person asks for something short."""
    before = server.metric(PREEMPTIONS)
    with concurrent.futures.ThreadPoolExecutor() as pool:
        found = pool.submit(answer, server.url, conversation.questions, answers, service_tier="flex")
        for _ in range(PERSONS_MOST):
            time.sleep(PAUSE)
            if found.done():
                break
            post(server.url, "/v1/completions", {"prompt": "Say hi.", "max_tokens": 2, "service_tier": "priority"})
    return found.result(), server.metric(PREEMPTIONS) - before


def restored(server, conversation, answers):
    """The answer of a conversation that was read before, and whether it came back from disk."""
    before = server.metric(FROM_DISK)
    return answer(server.url, conversation.questions, answers), server.metric(FROM_DISK) > before


def compared(asked, kv, conversations):
    """For each conversation: the answers in turns, and what it was like otherwise."""
    with Duet(asked, "--kv", kv) as server:
        plain = [in_turns(server.url, conversation) for conversation in conversations]
    texts = [[answer.text for answer in turns] for turns in plain]
    tokens = max(answer.prompt for turns in plain for answer in turns) + BESIDE
    with Duet(asked, "--kv", kv, "--kv-memory", str(int(asked.memory * tokens * bytes_per_token(asked, kv)))) as server:
        second = [preempted(server, *each) for each in zip(conversations, (said[:1] for said in texts))]
        third = [restored(server, *each) for each in zip(conversations, (said[:2] for said in texts))]
    for turns, (read, times), (back, from_disk) in zip(plain, second, third):
        yield turns, Otherwise(times, read.same(turns[1]), from_disk, back.same(turns[2]))


def bytes_per_token(asked, kv):
    told = subprocess.run([asked.duet, "inspect", asked.model], check=True, capture_output=True, text=True).stdout
    size = r"([\d.]+) MiB"
    sizes = re.search(rf"KV cache +{size} per 1024 tokens, {size} with --kv f16, {size} with --kv int4", told).groups()
    return int(float(dict(zip(("int8", "f16", "int4"), sizes))[kv]) * 1024)


def made(asked):
    """The conversations, counted by the model's own tokenizer."""
    with Duet(asked) as server:

        def count(part):
            return len(post(server.url, "/tokenize", {"content": part})["tokens"])

        text = asked.text.read_text(encoding="utf-8")
        for length in asked.lengths.split(","):
            for kind in asked.kinds.split(","):
                yield needles.over(text, int(length), kind, asked.seed, count)
    if asked.ruler:
        yield from needles.of_workload(asked.ruler, asked.items)


def row(conversation, kv, turns, otherwise, other):
    texts = [answer.text for answer in turns]
    cells = [conversation.name, turns[0].prompt, kv, share(conversation, texts), yes(goes_on(turns))]
    cells += [otherwise.preemptions, yes(otherwise.same_preempted)]
    cells += [yes(otherwise.from_disk), yes(otherwise.same_from_disk)]
    if other:
        cells += [share(conversation, other), f"{sum(a == b for a, b in zip(texts, other))} of {len(other)}"]
    return "| " + " | ".join(map(str, cells)) + " |"


def goes_on(turns):
    """Whether each turn's prompt was kept for the next, to a page."""
    return all(later.kept > before.prompt - PAGE for before, later in zip(turns, turns[1:]))


def header(has_other):
    titles = ["conversation", "tokens", "keys and values", "right", "kept", "preempted", "same", "from disk", "same"]
    titles += ["other: right", "same words"] if has_other else []
    return "| " + " | ".join(titles) + " |\n|" + " --- |" * len(titles)


def share(conversation, texts):
    rights = [needles.right(reference, text) for reference, text in zip(conversation.references, texts)]
    return f"{sum(rights):.3g} of {len(rights)}"


def yes(well):
    return "yes" if well else "NO"


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--duet", default="duet")
    parser.add_argument("--model", required=True)
    parser.add_argument("--text", required=True, type=pathlib.Path, help="what the numbers are hidden in")
    parser.add_argument("--lengths", default="2048,8192,32768", help="in tokens")
    parser.add_argument("--kinds", default="needle,keys", help="three numbers in a text, or three of many")
    parser.add_argument("--kv", default="f16,int8")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--ruler", type=pathlib.Path, help="a workload file whose first items are asked, too")
    parser.add_argument("--items", type=int, default=6)
    parser.add_argument("--against", help="another server's URL")
    parser.add_argument("--threads", type=int)
    parser.add_argument("--memory", type=float, default=1.0, help="of what the longest conversation takes whole")
    asked = parser.parse_args()
    # Ended from outside, this ends its server too.
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))
    conversations = list(made(asked))
    others = [None] * len(conversations)
    if asked.against:
        others = [[answer.text for answer in in_turns(asked.against, each)] for each in conversations]
    print(header(asked.against))
    well = True
    for kv in asked.kv.split(","):
        for conversation, other, (turns, otherwise) in zip(conversations, others, compared(asked, kv, conversations)):
            print(row(conversation, kv, turns, otherwise, other), flush=True)
            well = well and otherwise.is_well() and goes_on(turns)
    return int(not well)


# Positions whose keys and values are kept together.
PAGE = 64
PREEMPTIONS = "duet_preemptions_total"
FROM_DISK = 'duet_kv_restores_total{from="disk"}'

if __name__ == "__main__":
    sys.exit(main())
