#!/usr/bin/env python3
"""Speed of a model that is divided between a GPU and the cores, by duet and by llama.cpp with Vulkan.

    divided.py --duet BINARY --llama-server FILE --model FILE [--memory all,4GiB,2GiB,none] [--prompts 3]

For each size of GPU memory, `duet serve --device gpu:0,memory=SIZE` holds there as many layers as have room, and
llama-server is given as many by `-ngl` (`all`: every layer, and the head; `none`: the cores alone). Both are asked in
turns, on the same machine, by the same client: a prompt of about 512 tokens for one token, and another for 65. No
two prompts begin alike. A prompt's time is that of the first sort; 64 tokens take the difference. Medians are
printed, seconds and tokens a second, and how many times as fast duet is: one JSON line for each size. Needs the
standard library only.
"""

import argparse
import json
import os
import random
import re
import socket
import statistics
import subprocess
import tempfile
import time
import urllib.error
import urllib.request

START_SECONDS = 180
GENERATED = 64
# A token that is text: llama-server looks for calls of tools in what models of random weights say.
TEXT = 1000
WORDS = "river stone window letter garden engine winter music paper bridge morning forest number silver kitchen story".split()


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--duet", required=True)
    parser.add_argument("--llama-server", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--memory", default="all,4GiB,2GiB,none")
    parser.add_argument("--prompts", type=int, default=3)
    arguments = parser.parse_args()
    for memory in arguments.memory.split(","):
        ours, layers = duet(arguments, memory)
        theirs = llama(arguments, layers)
        print(json.dumps({"memory": memory, "layers": layers, "duet": ours, "llama.cpp": theirs,
                          "duet over llama.cpp": {"prompt": round(theirs["prompt_s"] / ours["prompt_s"], 2),
                                                  "answer": round(ours["tok_s"] / theirs["tok_s"], 2)}}), flush=True)


def duet(arguments, memory):
    """Its figures, and how many layers are on the GPU; -1 for all."""
    device = {"all": "gpu:0", "none": "cpu"}.get(memory, f"gpu:0,memory={memory}")
    command = [arguments.duet, "serve", arguments.model, "--port", str(port := free_port()), "--device", device,
               "--speculate", "off", "--history", "off"]
    with Server(command, port) as server:
        figures = measure(port, arguments.prompts, {})
    if memory == "none":
        return figures, 0
    # Only where they are not all there.
    held = re.search(r"layers (\d+) to (\d+)", server.said)
    return figures, int(held[2]) - int(held[1]) + 1 if held else -1


def llama(arguments, layers):
    command = [arguments.llama_server, "-m", arguments.model, "--port", str(port := free_port()), "-c", "4096", "-np", "1",
               "--device", "Vulkan0" if layers else "none", "-ngl", "999" if layers < 0 else str(layers)]
    with Server(command, port):
        return measure(port, arguments.prompts, {"logit_bias": [[TEXT, 100.0]]})


class Server:
    """A server while the block runs; what it said is there behind it."""

    def __init__(self, command, port):
        self.log = tempfile.NamedTemporaryFile("w+", suffix=".log")
        libraries = [os.path.dirname(os.path.abspath(command[0])), os.environ.get("LD_LIBRARY_PATH", "")]
        environment = {**os.environ, "GGML_VK_VISIBLE_DEVICES": "0", "LD_LIBRARY_PATH": os.pathsep.join(libraries)}
        self.process = subprocess.Popen(command, stdout=self.log, stderr=subprocess.STDOUT, env=environment)
        self.port = port

    def __enter__(self):
        for _ in range(START_SECONDS * 10):
            if self.process.poll() is not None:
                raise SystemExit(f"{self.process.args[0]} ended: {self._said()[-500:]}")
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=1):
                    return self
            except (urllib.error.URLError, OSError):
                time.sleep(0.1)
        raise SystemExit(f"{self.process.args[0]} was not ready within {START_SECONDS} s")

    def __exit__(self, *_):
        self.process.terminate()
        self.process.wait(timeout=30)
        self.said = self._said()

    def _said(self):
        with open(self.log.name, errors="replace") as log:
            return log.read()


def measure(port, prompts, more):
    # What compiles, and lets a GPU become fast.
    for seed in range(2):
        ask(port, seed, 1 + GENERATED, more)
    first = statistics.median(ask(port, 10 + seed, 1, more) for seed in range(prompts))
    whole = statistics.median(ask(port, 100 + seed, 1 + GENERATED, more) for seed in range(prompts))
    return {"prompt_s": round(first, 3), "tok_s": round(GENERATED / (whole - first), 1)}


def ask(port, seed, tokens, more):
    """Seconds until an answer of so many tokens is there."""
    prompt = " ".join(random.Random(seed).choices(WORDS, k=500))
    body = {"prompt": prompt, "max_tokens": tokens, "temperature": 0, "ignore_eos": True, **more}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/v1/completions", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    began = time.monotonic()
    with urllib.request.urlopen(request, timeout=300) as response:
        usage = json.load(response)["usage"]
    assert usage["completion_tokens"] == tokens, usage
    return time.monotonic() - began


def free_port():
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        return free.getsockname()[1]


if __name__ == "__main__":
    main()
