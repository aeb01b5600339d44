#!/usr/bin/env bash
# Tries a running server with the official `openai` package: scripts/test-openai.sh [DUET [MODEL]]
#
# Starts the program (by default the debug build) on a free port, runs tests/clients/openai_client.py against it, asks it
# to stop and expects it to end well. The package and what it depends on are installed once, into the target directory, in
# the versions of tests/clients/requirements.txt. Needs python3 with pip.
set -euo pipefail
cd "$(dirname "$0")/.."

requirements=tests/clients/requirements.txt

target=$(cargo metadata --no-deps --format-version 1 | sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')
duet=${1:-$target/debug/duet}
packages=$target/python/openai-$(sha256sum $requirements | cut -c1-12)
if [ ! -d "$packages" ]; then
    rm -rf "$packages.part"
    # A folder of its own: whatever else is installed is neither used nor changed.
    python3 -m pip install --quiet --disable-pip-version-check --no-warn-conflicts --root-user-action ignore \
        --target "$packages.part" -r "$requirements"
    mv "$packages.part" "$packages"
fi

log=$(mktemp)
"$duet" serve ${2:+"$2"} --port 0 2>"$log" &
server=$!
trap '[ -z "$server" ] || kill -KILL "$server"; rm -f "$log"' EXIT

# It tells its address once it listens and the model is loaded.
for _ in $(seq 600); do
    url=$(sed -n 's/.* is served at \(http[^ ]*\) .*/\1/p' "$log")
    if [ -n "$url" ] || ! kill -0 "$server" 2>/dev/null; then
        break
    fi
    sleep 0.5
done
if [ -z "$url" ]; then
    cat "$log" >&2
    echo "the server did not start" >&2
    exit 1
fi
python3 - "$url/health" <<'PYTHON'
import json, sys, urllib.request
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
assert json.load(direct.open(sys.argv[1], timeout=10)) == {"status": "ok"}
PYTHON

failed=0
# The server is on this machine: no proxy leads there.
NO_PROXY=127.0.0.1 no_proxy=127.0.0.1 PYTHONPATH=$packages python3 tests/clients/openai_client.py "$url/v1" || failed=1

kill -TERM "$server"
status=0
wait "$server" || status=$?
server=
if [ "$failed" -ne 0 ] || [ "$status" -ne 0 ]; then
    cat "$log" >&2
    echo "clients failed: $failed; the server ended with status $status" >&2
    exit 1
fi
echo "the server ended with status 0"
