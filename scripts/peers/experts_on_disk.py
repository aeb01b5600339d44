#!/usr/bin/env python3
"""A mixture of experts that is larger than memory: duet with its experts on disk, and llama.cpp with
a mapped file, each in a memory cgroup of the same limit.

    experts_on_disk.py MODEL.gguf --duet BINARY --llama-bench BINARY [--shares 25,50,75] [--rounds 1]
                       [--tokens 128] [--threads N]

`scripts/mixture_model.py` makes such a model. For each share of the experts that is to be in memory:

  limit      the dense weights, the share of the experts, and ROOM for all else (KV, activations, the
             program), for both alike
  duet       `duet bench throughput --expert-memory SHARE`: tokens a second, and what it reads
  llama.cpp  `llama-bench -p 0 -n TOKENS -d 128 -lm mmap --repack 0`: by default it would hold a copy of
             the weights in another order, which no such limit has room for

duet tells what it reads of experts for a token; its other weights are read once, at the start. Of
llama.cpp it is what the kernel says (`read_bytes` in /proc/PID/io): the difference of a run of TOKENS
and one of a quarter of them. Before each run the page cache is emptied. Needs cgroup v1 or v2, and
root. The tokens of both are spread over the vocabulary.

Prints a table, and one JSON line for each share.
"""

import argparse
import json
import os
import pathlib
import statistics
import subprocess
import sys
import time

ROOM = 400 << 20
CONTEXT = 128


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("--duet", required=True)
    parser.add_argument("--llama-bench", required=True)
    parser.add_argument("--shares", default="25,50,75")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--tokens", type=int, default=128)
    parser.add_argument("--threads", type=int, default=os.cpu_count())
    arguments = parser.parse_args()
    tensors = json.loads(run([arguments.duet, "inspect", arguments.model, "--tensors", "--json"]))["tensors"]
    experts = sum(tensor["bytes"] for tensor in tensors if "_exps." in tensor["name"])
    embeddings = sum(tensor["bytes"] for tensor in tensors if tensor["name"] == "token_embd.weight")
    dense = sum(tensor["bytes"] for tensor in tensors) - experts - embeddings
    print(f"{experts / 1e9:.2f} GB of experts, {dense / 1e9:.2f} GB of other weights", file=sys.stderr)
    for share in map(int, arguments.shares.split(",")):
        given = experts * share // 100
        with Group(dense + given + ROOM) as group:
            rows = [(duet(arguments, group, given), llama(arguments, group)) for _ in range(arguments.rounds)]
        figures = {
            "share": share,
            "limit_bytes": dense + given + ROOM,
            "duet": middle([ours for ours, _ in rows]),
            "llama_cpp": middle([theirs for _, theirs in rows]),
        }
        figures["speed_ratio"] = figures["duet"]["tok_s"] / figures["llama_cpp"]["tok_s"]
        figures["bytes_ratio"] = figures["llama_cpp"]["bytes_per_token"] / max(1, figures["duet"]["bytes_per_token"])
        ours, theirs = figures["duet"], figures["llama_cpp"]
        print(f"{share:3} % in memory: duet {ours['tok_s']:.1f} tok/s, {ours['bytes_per_token'] / 1e6:.1f} MB a token; "
              f"llama.cpp {theirs['tok_s']:.1f} tok/s, {theirs['bytes_per_token'] / 1e6:.1f} MB a token; "
              f"{figures['speed_ratio']:.2f} x as fast, {figures['bytes_ratio']:.2f} x fewer bytes", file=sys.stderr)
        print(json.dumps(figures), flush=True)


def duet(arguments, group, given):
    command = [arguments.duet, "bench", "throughput", arguments.model, "--expert-memory", str(given), "--json",
               "--prompt", str(CONTEXT), "--gen", str(arguments.tokens), "--batch", "1", "--long", str(CONTEXT),
               "--samples", "1", "--threads", str(arguments.threads)]
    decode = json.loads(group.run(command)[0])["decode"][0]
    experts = decode["experts"]
    return {"tok_s": decode["tok_s"], "bytes_per_token": experts["bytes_per_token"], "in_memory": experts["in_memory"],
            "foreseen": experts["foreseen"], "foreseen_right": experts.get("foreseen_right", 0.0)}


def llama(arguments, group):
    def bench(tokens):
        command = [arguments.llama_bench, "-m", arguments.model, "-p", "0", "-n", str(tokens), "-d", str(CONTEXT),
                   "-r", "1", "-t", str(arguments.threads), "-ub", str(CONTEXT), "-ngl", "0", "-lm", "mmap",
                   "--repack", "0", "-o", "json"]
        output, read = group.run(command)
        return json.loads(output)[0]["avg_ts"], read

    few, (speed, many) = bench(arguments.tokens // 4)[1], bench(arguments.tokens)
    # llama-bench warms up with one token, in both runs alike.
    per_token = (many - few) / (arguments.tokens - arguments.tokens // 4)
    return {"tok_s": speed, "bytes_per_token": max(0.0, per_token)}


def middle(figures):
    return {name: statistics.median(one[name] for one in figures) for name in figures[0]}


def run(command, **options):
    return subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, **options).stdout


class Group:
    """A memory cgroup, of either version, that goes away with its last process."""

    def __init__(self, limit):
        version_1 = pathlib.Path("/sys/fs/cgroup/memory")
        root, name = (version_1, "memory.limit_in_bytes") if version_1.is_dir() else (version_1.parent, "memory.max")
        self.path, self.limit_file, self.limit = root / f"experts-on-disk-{os.getpid()}", name, limit

    def __enter__(self):
        self.path.mkdir()
        (self.path / self.limit_file).write_text(str(self.limit))
        return self

    def __exit__(self, *_):
        for _ in range(50):
            try:
                return self.path.rmdir()
            except OSError:
                time.sleep(0.1)

    def run(self, command):
        """Its output, and what it read from disks."""
        pathlib.Path("/proc/sys/vm/drop_caches").write_text("3")
        join = lambda: (self.path / "cgroup.procs").write_text(str(os.getpid()))
        process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True, preexec_fn=join)
        output, read = process.stdout.read(), 0
        # A process that has ended keeps its figures until it is waited for.
        os.waitid(os.P_PID, process.pid, os.WEXITED | os.WNOWAIT)
        for line in pathlib.Path(f"/proc/{process.pid}/io").read_text().splitlines():
            read = int(line.split()[1]) if line.startswith("read_bytes:") else read
        if process.wait() != 0:
            raise SystemExit(f"{command[0]} ended with {process.returncode}")
        return output, read


if __name__ == "__main__":
    main()
