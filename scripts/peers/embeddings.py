#!/usr/bin/env python3
"""Texts per second of `/v1/embeddings`, and what they cost a person's answer.

    embeddings.py URL [--reference MODEL_DIR] [--threads 2] [--person]

URL is a `duet serve MODEL --embeddings MODEL2`. The texts are sentences, and paragraphs, of `wonderland.txt`, sent in one
request of background work each. With `--reference` the same texts go through sentence-transformers, in turns with the server's,
on the same machine; MODEL_DIR is a folder as it has them. With `--person` an answer of 64 tokens is asked for alone, and while
embeddings never end. Medians of five, in turns. Needs: numpy; sentence-transformers for the reference.
"""

import argparse
import itertools
import json
import pathlib
import re
import statistics
import threading
import time
import urllib.request

TEXT = pathlib.Path(__file__).parents[2] / "crates/model/tests/fixtures/wonderland.txt"
SAMPLES = 5
# Texts of a request beside a person's.
TOGETHER = 32


def texts():
    """Names and texts: a thousand sentences, and two hundred pieces of some eight of them."""
    sentences = [s.strip() for s in re.split(r"(?<=[.!?;:])\s+", TEXT.read_text()) if len(s.strip()) > 20]
    sentences = (sentences * 3)[:1000]
    return {"sentences": sentences, "paragraphs": [" ".join(sentences[i * 5:i * 5 + 8])[:1500] for i in range(199)]}


def post(url, path, body):
    data = json.dumps(body).encode()
    request = urllib.request.Request(url + path, data, {"Content-Type": "application/json"})
    return urllib.request.urlopen(request)


def embed(url, of):
    begun = time.perf_counter()
    answer = json.load(post(url, "/v1/embeddings", {"input": of, "background": True}))
    return time.perf_counter() - begun, answer


def reference(folder, threads):
    import torch
    from sentence_transformers import SentenceTransformer
    torch.set_num_threads(threads)
    model = SentenceTransformer(folder, device="cpu")
    model.max_seq_length = 512

    def encode(of):
        begun = time.perf_counter()
        vectors = model.encode(of, batch_size=32, normalize_embeddings=True, show_progress_bar=False)
        return time.perf_counter() - begun, vectors
    return encode


def throughput(url, other):
    import numpy
    for name, of in texts().items():
        ours, theirs, tokens, vectors, known = [], [], 0, [], []
        for _ in range(SAMPLES):
            took, answer = embed(url, of)
            ours.append(took)
            tokens, vectors = answer["usage"]["prompt_tokens"], [entry["embedding"] for entry in answer["data"]]
            if other:
                took, known = other(of)
                theirs.append(took)
        line = f"{len(of)} {name}, {tokens / len(of):.0f} tokens each: {len(of) / statistics.median(ours):.0f} texts/s"
        if other:
            cosines = (numpy.array(vectors) * numpy.array(known)).sum(1)
            line += (f"; sentence-transformers {len(of) / statistics.median(theirs):.0f} texts/s"
                     f"; cosines from {cosines.min():.7f} to {cosines.max():.7f}")
        print(line, flush=True)


def answer(url, number):
    """Seconds to the first token, and to the end."""
    body = {"messages": [{"role": "user", "content": f"Number {number}. Tell me about a river in a few sentences."}],
            "max_tokens": 64, "temperature": 0, "stream": True}
    begun, first = time.perf_counter(), None
    for line in post(url, "/v1/chat/completions", body):
        if first is None and b'"content":"' in line and b'"content":""' not in line:
            first = time.perf_counter() - begun
    return first, time.perf_counter() - begun


def person(url):
    of, done, stop = texts()["sentences"], [0], threading.Event()

    def background():
        for begin in itertools.cycle(range(0, len(of), TOGETHER)):
            if stop.is_set():
                return
            embed(url, of[begin:begin + TOGETHER])
            done[0] += len(of[begin:begin + TOGETHER])
    answer(url, -1)
    alone = [answer(url, number) for number in range(SAMPLES)]
    thread = threading.Thread(target=background)
    thread.start()
    time.sleep(1)
    beside, before, begun = [], done[0], time.perf_counter()
    for number in range(100, 100 + SAMPLES):
        beside.append(answer(url, number))
        # A person reads what was said.
        time.sleep(1)
    rate = (done[0] - before) / (time.perf_counter() - begun)
    stop.set()
    thread.join()
    for what, index in (("first token", 0), ("64 tokens", 1)):
        a, b = (statistics.median(sample[index] for sample in of) for of in (alone, beside))
        print(f"{what}: {a * 1e3:.0f} ms alone, {b * 1e3:.0f} ms beside embeddings ({b / a:.3f} x)")
    print(f"embeddings meanwhile: {rate:.0f} texts/s, a second between answers", flush=True)


def main():
    arguments = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    arguments.add_argument("url")
    arguments.add_argument("--reference")
    arguments.add_argument("--threads", type=int, default=2)
    arguments.add_argument("--person", action="store_true")
    arguments = arguments.parse_args()
    if arguments.person:
        person(arguments.url)
    else:
        throughput(arguments.url, arguments.reference and reference(arguments.reference, arguments.threads))


if __name__ == "__main__":
    main()
