#!/usr/bin/env python3
"""Latency over load, of duet beside llama.cpp's server and OpenVINO GenAI's continuous batching.

    load.py --duet BINARY --model FILE [--llama-bin DIR] [--openvino PYTHON]
            [--points 3+6,12+60] [--seconds 120] [--rounds 2] [-- further flags of duet bench load]

For each peer in turn: starts its server on a free port, waits until it is healthy, runs

    duet bench load FILE --curve --peer NAME=URL --json

in which duet and the peer take turns, slice by slice, with the same arrivals and prompts, and stops the server. Only
one server runs at a time. stdout gets duet's JSON lines, each with the key `beside`; duet's own figures so come once
per peer, taken in the same minutes as that peer's. Needs the standard library only.
"""

import argparse
import json
import os
import pathlib
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request

HEALTHY_WITHIN_S = 180
STOPPED_WITHIN_S = 20


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--duet", required=True, help="the duet binary")
    parser.add_argument("--model", required=True, help="GGUF file that all of them read")
    parser.add_argument("--llama-bin", help="folder of llama-server")
    parser.add_argument("--openvino", metavar="PYTHON", help="a Python that has openvino-genai")
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--points", help="loads: reactive + proactive requests a minute, as 3+6,12+60")
    parser.add_argument("--seconds", type=float, default=120, help="of each subject at each load")
    parser.add_argument("--rounds", type=int, default=2, help="turns that these seconds are divided into")
    parser.add_argument("rest", nargs="*", help="after --: further flags of duet bench load")
    arguments = parser.parse_args()
    peers = {}
    if arguments.llama_bin:
        peers["llama"] = llama
    if arguments.openvino:
        peers["openvino"] = openvino
    if not peers:
        parser.error("give --llama-bin, --openvino or both")
    for name, command in peers.items():
        measure(name, command, arguments)


def llama(arguments, port):
    folder = pathlib.Path(arguments.llama_bin).resolve()
    command = [str(folder / "llama-server"), "-m", arguments.model, "--host", "127.0.0.1", "--port", str(port),
               "-np", "8", "-c", "32768", "-t", str(arguments.threads), "-tb", str(arguments.threads)]
    library_path = os.pathsep.join(filter(None, [str(folder), os.environ.get("LD_LIBRARY_PATH")]))
    return command, {**os.environ, "LD_LIBRARY_PATH": library_path}


def openvino(arguments, port):
    server = pathlib.Path(__file__).resolve().parent / "openvino_server.py"
    command = [arguments.openvino, str(server), arguments.model, "--port", str(port),
               "--threads", str(arguments.threads)]
    return command, dict(os.environ)


def measure(name, command, arguments):
    port = free_port()
    url = f"http://127.0.0.1:{port}"
    server_command, environment = command(arguments, port)
    print(f"load.py: starting {name}", file=sys.stderr)
    # In a group of its own, so that whatever it starts ends with it.
    server = subprocess.Popen(server_command, env=environment, stdout=subprocess.DEVNULL,
                              stderr=subprocess.DEVNULL, start_new_session=True)
    try:
        wait_until_healthy(name, server, url)
        for line in curve(arguments, name, url):
            print(json.dumps({"beside": name, **json.loads(line)}), flush=True)
    finally:
        stop(server)


def curve(arguments, name, url):
    command = [arguments.duet, "bench", "load", arguments.model, "--curve", "--peer", f"{name}={url}", "--json",
               "--threads", str(arguments.threads), "--seconds", str(arguments.seconds),
               "--rounds", str(arguments.rounds)]
    if arguments.points:
        command += ["--points", arguments.points]
    done = subprocess.run(command + arguments.rest, stdout=subprocess.PIPE, text=True)
    if done.returncode != 0:
        sys.exit(f"duet bench load ended with status {done.returncode}")
    return done.stdout.splitlines()


def wait_until_healthy(name, server, url):
    deadline = time.monotonic() + HEALTHY_WITHIN_S
    while time.monotonic() < deadline:
        if server.poll() is not None:
            sys.exit(f"{name} ended with status {server.returncode} before it was healthy")
        try:
            with urllib.request.urlopen(f"{url}/health", timeout=2) as response:
                if response.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            pass
        time.sleep(0.2)
    sys.exit(f"{name} was not healthy within {HEALTHY_WITHIN_S} s")


def stop(server):
    for how in (signal.SIGTERM, signal.SIGKILL):
        try:
            os.killpg(server.pid, how)
            server.wait(STOPPED_WITHIN_S)
            return
        except ProcessLookupError:
            return
        except subprocess.TimeoutExpired:
            continue


def free_port():
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


if __name__ == "__main__":
    main()
