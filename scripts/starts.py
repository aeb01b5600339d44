#!/usr/bin/env python3
"""How soon a model answers after `duet run`: at the first start, which packs its weights and measures the
machine, and at a second one, which maps them and knows the machine.

    starts.py MODEL.gguf BINARY [BINARY ...] [--rounds 3]

Binaries take turns, each with an empty cache in a folder of its own. The model's file is read before, so
that its pages are in memory. Prints the median of the rounds, and the least and the most.
"""

import argparse
import os
import pathlib
import statistics
import subprocess
import tempfile
import time

SECOND_STARTS = 2


def main():
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=pathlib.Path)
    parser.add_argument("binaries", nargs="+", metavar="BINARY")
    parser.add_argument("--rounds", type=int, default=3)
    arguments = parser.parse_args()
    with open(arguments.model, "rb") as file:
        while file.read(1 << 24):
            pass
    found = {binary: [] for binary in arguments.binaries}
    for _ in range(arguments.rounds):
        for binary in arguments.binaries:
            with tempfile.TemporaryDirectory() as folder:
                first = start(binary, arguments.model, folder)
                seconds = [start(binary, arguments.model, folder) for _ in range(SECOND_STARTS)]
                found[binary].append((first, seconds))
    for binary, rounds in found.items():
        firsts = [first for first, _ in rounds]
        seconds = [second for _, several in rounds for second in several]
        print(binary)
        for name, starts in [("first start", firsts), ("second start", seconds)]:
            token, memory = zip(*starts)
            print(f"  {name:12}  first token after {middle(token, 2)} s, at most {middle(memory, 0)} MiB")


def start(binary, model, folder):
    """Seconds until the first byte of an answer, and the most MiB that the process had in memory."""
    folders = {name: folder for name in ["DUET_CACHE", "XDG_CACHE_HOME", "XDG_DATA_HOME", "XDG_STATE_HOME"]}
    begun = time.monotonic()
    process = subprocess.Popen(
        [binary, "run", str(model), "--max-tokens", "8", "Hi"], env={**os.environ, **folders},
        stdout=subprocess.PIPE, stderr=subprocess.DEVNULL)
    byte = process.stdout.read(1)
    took = time.monotonic() - begun
    process.stdout.read()
    _, status, usage = os.wait4(process.pid, 0)
    process.returncode = os.waitstatus_to_exitcode(status)
    if process.returncode != 0 or not byte:
        raise SystemExit(f"error: {binary} ended with {process.returncode}")
    return took, usage.ru_maxrss / 1024


def middle(values, digits):
    least, most = min(values), max(values)
    return f"{statistics.median(values):.{digits}f} ({least:.{digits}f}-{most:.{digits}f})"


if __name__ == "__main__":
    main()
