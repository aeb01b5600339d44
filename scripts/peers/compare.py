#!/usr/bin/env python3
"""The same figures from duet, llama.cpp and OpenVINO GenAI, taken side by side.

    compare.py --llama-bin DIR --model-q8 FILE [--model-q4 FILE] [--model FILE]… [--duet BINARY]…
               [--llama-server FILE] [--openvino PYTHON] [--rounds 3] [--realtime | --beside N]

A machine's speed drifts by more than the differences worth knowing, so nothing is compared across
runs: each round measures every peer on one figure before it goes to the next, every other round in
reverse order, and a ratio is taken within its round. Medians over rounds are printed.

The machine must be idle. llama.cpp's threads spin at barriers, so beside any other load its figures
fall to a small part of the true ones, and ratios to it would flatter. Before every measurement the
script waits for the machine to fall idle and gives up if it does not; `--busy` measures anyway and
says so in every line of output. `--realtime` keeps the cores from other programs instead: every peer
runs at a real-time priority (`chrt`, as root), so that the others wait as long as it does not.
`--beside N` measures what is left beside other work: N programs that compute without end, each in a
session of its own, as a compiler that an agent has started would be; or that do what `--doing COMMAND`
says, again and again.

Figures, tokens per second:
  prefill    a prompt of 512 tokens (--prompt), one sequence, to its first token
  decode B   64 tokens (--generate) for each of B sequences that have 128 tokens of context

How each peer measures them:
  duet       `duet bench throughput`, with `--prompt 512` for prefill and `--prompt 128` for decode
  llama.cpp  prefill and decode 1: `llama-bench` (`-p 512`; `-n 64 -d 128`);
             decode of more: `llama-batched-bench`
  llama-server  where only that program is at hand: what its answers to requests say of themselves,
             with as many slots as sequences; those of several are added up. Its process stays alive.
  openvino   LLMPipeline on token ids, random ones so that no prefix is cached: time to the first
             token, and after it. Its process stays alive, idle, between figures.
             It converts the GGUF file itself; a file it cannot convert is skipped.

The table goes to stderr; stdout gets one JSON line per model and peer, then one per model of ratios.
Needs the standard library only.
"""

import argparse
import concurrent.futures
import contextlib
import json
import os
import random
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.request

PROMPT = 512
CONTEXT = 128
GENERATED = 64
BUSY_MAX = 0.10
IDLE_TRIES = 30
START_SECONDS = 120
WORDS = " one two three four five six seven eight nine ten red green blue house tree river road door window"


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--duet", action="append", default=[], metavar="BINARY",
                        help="the duet binary; another, to compare it with, may be given again")
    parser.add_argument("--llama-bin", help="folder of llama-bench and llama-batched-bench")
    parser.add_argument("--llama-server", metavar="FILE", help="the program llama-server")
    parser.add_argument("--openvino", metavar="PYTHON", help="a Python that has openvino-genai")
    parser.add_argument("--model-q8", help="GGUF file, Q8_0")
    parser.add_argument("--model-q4", help="GGUF file, 4 bits")
    parser.add_argument("--model", action="append", default=[], metavar="FILE",
                        help="another GGUF file, such as one of experts; may be given again")
    parser.add_argument("--rounds", type=positive, default=3)
    parser.add_argument("--threads", type=positive, default=2)
    parser.add_argument("--prompt", type=positive, default=PROMPT, help="tokens of the prompt that is read (512)")
    parser.add_argument("--generate", type=positive, default=GENERATED, metavar="TOKENS",
                        help="tokens that each sequence decodes (64)")
    parser.add_argument("--batch", type=batches, default=[1, 4, 16])
    load = parser.add_mutually_exclusive_group()
    load.add_argument("--busy", action="store_true", help="measure on a busy machine (for trials)")
    load.add_argument("--realtime", action="store_true", help="keep the cores from other programs")
    load.add_argument("--beside", type=positive, metavar="N", help="beside N programs that compute without end")
    parser.add_argument("--doing", metavar="COMMAND", help="what those do instead, in a shell, again and again")
    arguments = parser.parse_args()
    models = {name: path for name, path in (("q8", arguments.model_q8), ("q4", arguments.model_q4))
              if path}
    models |= {os.path.splitext(os.path.basename(path))[0]: path for path in arguments.model}
    if not models:
        parser.error("give --model-q8, --model-q4 or --model")
    if arguments.doing and not arguments.beside:
        parser.error("--doing is for --beside")
    if arguments.realtime and arguments.openvino:
        parser.error("--realtime is for peers that are started for each figure: not --openvino")
    if not (arguments.duet or arguments.llama_bin or arguments.llama_server or arguments.openvino):
        parser.error("give at least one of --duet, --llama-bin, --llama-server, --openvino")

    for name, path in models.items():
        peers = start(arguments, path)
        try:
            rounds = measure(peers, arguments)
        except PeerError as error:
            sys.exit(str(error))
        finally:
            for peer in peers:
                peer.close()
        report(name, path, rounds, arguments)


def start(arguments, model):
    peers = []
    for binary in arguments.duet:
        peers.append(Duet(binary, model, arguments))
        if len(peers) > 1:
            peers[-1].name = binary
    if arguments.llama_bin:
        peers.append(LlamaCpp(arguments.llama_bin, model, arguments))
    if arguments.llama_server:
        peers.append(LlamaServer(arguments.llama_server, model, arguments))
    if arguments.openvino:
        try:
            peers.append(OpenVino(arguments.openvino, model, arguments))
        except PeerError as error:
            print(f"openvino skipped for {model}: {error}", file=sys.stderr)
    return peers


def measure(peers, arguments):
    """For each round: peer name -> figure -> tokens per second."""
    rounds = []
    for number in range(arguments.rounds):
        figures = {peer.name: {} for peer in peers}
        order = peers if number % 2 == 0 else peers[::-1]
        for step in ("prefill", "decode"):
            for peer in order:
                if not (arguments.busy or arguments.realtime):
                    wait_for_idle()
                with programs(arguments.beside or 0, arguments.doing):
                    if step == "prefill":
                        figures[peer.name]["prefill"] = peer.prefill()
                    else:
                        for batch, speed in peer.decode(arguments.batch).items():
                            figures[peer.name][f"decode {batch}"] = speed
                print(f"round {number + 1}/{arguments.rounds} {step} {peer.name}", file=sys.stderr)
        rounds.append(figures)
    return rounds


@contextlib.contextmanager
def programs(count, doing):
    """Has so many programs compute meanwhile, or do something again and again."""
    program = ["sh", "-c", f"while :; do {doing}; done"] if doing else [sys.executable, "-c", "while True: pass"]
    started = [subprocess.Popen(program, start_new_session=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
               for _ in range(count)]
    try:
        yield
    finally:
        for program in started:
            # With all that it has started.
            os.killpg(program.pid, signal.SIGKILL)
            program.wait()


def wait_for_idle():
    for _ in range(IDLE_TRIES):
        busy = busy_share()
        if busy <= BUSY_MAX:
            return
    sys.exit(f"other work takes {busy:.0%} of the machine (at most {BUSY_MAX:.0%} is allowed): "
             "stop it, or give --busy and do not use the figures")


def busy_share():
    """Share of all cores' time that went to anything over one second."""
    def read():
        with open("/proc/stat") as file:
            times = [int(part) for part in file.readline().split()[1:9]]
        return sum(times), times[3] + times[4]

    total, idle = read()
    time.sleep(1)
    total_after, idle_after = read()
    return 1 - (idle_after - idle) / max(1, total_after - total)


def report(name, model, rounds, arguments):
    note = {"busy_machine": True} if arguments.busy else {}
    note |= {"realtime": True} if arguments.realtime else {}
    note |= {"beside": arguments.beside, "doing": arguments.doing} if arguments.beside else {}
    columns = ["prefill"] + [f"decode {batch}" for batch in arguments.batch]
    peers = list(rounds[0])
    lines = [(peer, {c: [r[peer][c] for r in rounds] for c in columns}) for peer in peers]
    ours = peers[0]
    ratios = {peer: {c: [r[ours][c] / r[peer][c] for r in rounds] for c in columns}
              for peer in peers[1:]}

    print(f"\n{name} ({os.path.basename(model)}), tokens per second, "
          f"median of {len(rounds)} (least-most)"
          f"{f', beside {arguments.beside} busy programs' if arguments.beside else ''}"
          f"{', BUSY MACHINE: not for use' if arguments.busy else ''}", file=sys.stderr)
    print(f"{'':22}" + "".join(f"{c:>24}" for c in columns), file=sys.stderr)
    for peer, figures in lines:
        print(f"{peer:22}" + "".join(f"{summary(figures[c], 1):>24}" for c in columns),
              file=sys.stderr)
    for peer, figures in ratios.items():
        print(f"{ours + ' / ' + peer:22}" + "".join(f"{summary(figures[c], 2):>24}" for c in columns),
              file=sys.stderr)

    for peer, figures in lines:
        print(json.dumps({"model": name, "peer": peer, "n": len(rounds),
                          "threads": arguments.threads, **note, "tok_s": spread(figures)}))
    if ratios:
        print(json.dumps({"model": name, "ratio_of": ours, "n": len(rounds), **note,
                          "to": {peer: spread(figures) for peer, figures in ratios.items()}}),
              flush=True)


def summary(values, digits):
    return (f"{statistics.median(values):.{digits}f} "
            f"({min(values):.{digits}f}-{max(values):.{digits}f})")


def spread(figures):
    return {column: {"median": round(statistics.median(values), 3),
                     "min": round(min(values), 3), "max": round(max(values), 3)}
            for column, values in figures.items()}


class PeerError(Exception):
    """A peer could not be started or did not print what it should."""


class Duet:
    name = "duet"

    def __init__(self, binary, model, arguments):
        self.binary, self.model, self.threads = binary, model, arguments.threads
        self.prompt, self.generated = arguments.prompt, arguments.generate
        self.priority = priority(arguments)

    def prefill(self):
        return self._bench(self.prompt, 1, [1], "prefill_tok_s")

    def decode(self, batch):
        decode = self._bench(CONTEXT, self.generated, batch, "decode")
        speeds = {entry["batch"]: entry["tok_s"] for entry in decode}
        return {size: speeds[size] for size in batch}

    def _bench(self, prompt, generated, batch, key):
        # One sample a round, after its own warm-up, and no context longer than those that are compared.
        line = last_json(run([
            *self.priority, self.binary, "bench", "throughput", self.model, "--prompt", str(prompt),
            "--gen", str(generated), "--batch", ",".join(map(str, batch)), "--long", str(CONTEXT),
            "--threads", str(self.threads), "--samples", "1", "--json"]))
        if key not in line:
            raise PeerError(f"duet printed no {key}: it printed {sorted(line)}")
        return line[key]

    def close(self):
        pass


class LlamaCpp:
    name = "llama.cpp"

    def __init__(self, folder, model, arguments):
        self.folder, self.model, self.threads = folder, model, arguments.threads
        self.prompt, self.generated = arguments.prompt, arguments.generate
        self.priority = priority(arguments)

    def prefill(self):
        return self._bench("-p", self.prompt, "-n", 0)

    def decode(self, batch):
        speeds = {}
        if 1 in batch:
            speeds[1] = self._bench("-p", 0, "-n", self.generated, "-d", CONTEXT)
        several = [size for size in batch if size != 1]
        if several:
            context = max(several) * (CONTEXT + self.generated)
            text = self._run("llama-batched-bench", "-c", context, "-b", 2048, "-ub", 512,
                             "-npp", CONTEXT, "-ntg", self.generated,
                             "-npl", ",".join(map(str, several)), "--output-format", "jsonl")
            for line in text.splitlines():
                if line.startswith("{"):
                    row = json.loads(line)
                    speeds[row["pl"]] = row["speed_tg"]
        return {size: speeds[size] for size in batch}

    def _bench(self, *arguments):
        # One repetition a round, after llama-bench's own warm-up.
        text = self._run("llama-bench", *arguments, "-r", 1, "-o", "json")
        (row,) = json.loads(text[text.index("["):])
        return row["avg_ts"]

    def _run(self, program, *arguments):
        return run([*self.priority, os.path.join(self.folder, program), "-m", self.model,
                    "-t", str(self.threads), *map(str, arguments)], {"LD_LIBRARY_PATH": self.folder})

    def close(self):
        pass


class LlamaServer:
    name = "llama-server"

    def __init__(self, program, model, arguments):
        slots = max(arguments.batch)
        self.prompt, self.generated = arguments.prompt, arguments.generate
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = free.getsockname()[1]
        self.process = subprocess.Popen(
            [*priority(arguments), program, "-m", model, "-t", str(arguments.threads), "--port", str(self.port),
             "-c", str(slots * (max(self.prompt, CONTEXT) + self.generated)), "-np", str(slots), "-b", "2048", "-ub", "512", "-ngl", "0"],
            env={**os.environ, "LD_LIBRARY_PATH": os.path.dirname(program)},
            stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
        try:
            self._wait()
        except PeerError:
            self.close()
            raise
        # Warm-up.
        self.prefill()

    def prefill(self):
        return self._answers(1, self.prompt, 1)[0]["prompt_per_second"]

    def decode(self, batch):
        return {size: sum(timings["predicted_per_second"] for timings in self._answers(size, CONTEXT, self.generated))
                for size in batch}

    def _answers(self, count, prompt, new):
        """What answers to `count` requests at once say of their speed. No two prompts begin alike, and all are of
        words: any tokens would have answers that are no text, which the server refuses to send."""
        words = self._post("/tokenize", {"content": WORDS})["tokens"]

        def answer(index):
            ids = random.Random(index).choices(words, k=prompt)
            return self._post("/completion", {"prompt": ids, "n_predict": new, "ignore_eos": True, "temperature": 0,
                                              "cache_prompt": False})["timings"]

        with concurrent.futures.ThreadPoolExecutor(count) as pool:
            return list(pool.map(answer, range(count)))

    def _post(self, path, body):
        request = urllib.request.Request(f"http://127.0.0.1:{self.port}{path}", json.dumps(body).encode(),
                                         {"Content-Type": "application/json"})
        with urllib.request.urlopen(request, timeout=600) as response:
            return json.load(response)

    def _wait(self):
        for _ in range(START_SECONDS):
            if self.process.poll() is not None:
                raise PeerError(f"llama-server ended with {self.process.returncode}")
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.port}/health", timeout=1):
                    return
            except OSError:
                time.sleep(1)
        raise PeerError(f"llama-server was not ready within {START_SECONDS} s")

    def close(self):
        self.process.terminate()
        self.process.wait(timeout=30)


class OpenVino:
    name = "openvino"

    def __init__(self, python, model, arguments):
        self.prompt, self.generated = arguments.prompt, arguments.generate
        self.process = subprocess.Popen(
            [python, "-c", OPENVINO_WORKER, os.path.abspath(model), str(arguments.threads)],
            stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        ready = self.process.stdout.readline()
        if ready.strip() != "ready":
            _, errors = self.process.communicate()
            raise PeerError((errors.strip().splitlines() or ["it ended without a word"])[-1])
        # Warm-up: the first run of a shape compiles and allocates.
        self._generate(1, self.prompt, 1)
        self._generate(1, CONTEXT, 8)

    def prefill(self):
        first, _ = self._generate(1, self.prompt, 1)
        return self.prompt / first

    def decode(self, batch):
        speeds = {}
        for size in batch:
            first, total = self._generate(size, CONTEXT, self.generated + 1)
            speeds[size] = size * self.generated / (total - first)
        return speeds

    def _generate(self, batch, prompt, new):
        """Seconds to the first token and in total."""
        self.process.stdin.write(f"{batch} {prompt} {new}\n")
        self.process.stdin.flush()
        line = self.process.stdout.readline()
        if not line:
            raise PeerError("OpenVINO's process ended: " + self.process.stderr.read()[-500:])
        return json.loads(line)

    def close(self):
        self.process.stdin.close()
        self.process.wait(timeout=30)


# One line in, `batch prompt new`; one line out, [seconds to first token, seconds in total].
OPENVINO_WORKER = """
import json, sys, time
import numpy as np
import openvino as ov
import openvino_genai as genai
pipeline = genai.LLMPipeline(sys.argv[1], "CPU", INFERENCE_NUM_THREADS=int(sys.argv[2]))
random_ids = np.random.default_rng(0)
print("ready", flush=True)
for line in sys.stdin:
    batch, prompt, new = map(int, line.split())
    ids = random_ids.integers(100, 10000, (batch, prompt)).astype(np.int64)
    tokens = genai.TokenizedInputs(ov.Tensor(ids), ov.Tensor(np.ones_like(ids)))
    config = genai.GenerationConfig()
    config.max_new_tokens, config.ignore_eos, config.do_sample = new, True, False
    start = time.perf_counter()
    result = pipeline.generate(tokens, config)
    total = time.perf_counter() - start
    assert all(len(row) == new for row in result.tokens), "fewer tokens than asked for"
    print(json.dumps([result.perf_metrics.get_ttft().mean / 1e3, total]), flush=True)
"""


def priority(arguments):
    return ["chrt", "--fifo", "20"] if arguments.realtime else []


def run(command, environment=None):
    result = subprocess.run(command, env={**os.environ, **(environment or {})},
                            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    if result.returncode != 0:
        sys.exit(f"{' '.join(command)}\nended with {result.returncode}: {result.stderr[-800:]}")
    return result.stdout


def last_json(text):
    lines = [line for line in text.splitlines() if line.startswith("{")]
    if not lines:
        raise PeerError(f"no JSON line in: {text[-300:]!r}")
    return json.loads(lines[-1])


def positive(text):
    value = int(text)
    if value < 1:
        raise argparse.ArgumentTypeError("must be at least 1")
    return value


def batches(text):
    return [positive(part) for part in text.split(",")]


if __name__ == "__main__":
    main()
