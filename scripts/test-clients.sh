#!/usr/bin/env bash
# Tries a running server with the clients that people use: scripts/test-clients.sh [DUET [MODEL [CLIENT…]]]
#
# Starts the program (by default the debug build, with the default model) on a free port and runs the scripts of
# tests/clients against it, or those that are named (`ollama_client`), each with the package that its first lines name, in
# an environment of its own: a home that is empty, and no variable of yours. Packages are installed once, into the target
# directory. Needs python3 with pip. Exits non-zero if any check of any client failed.
set -euo pipefail
cd "$(dirname "$0")/.."

target=$(cargo metadata --no-deps --format-version 1 | sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')
duet=${1:-$target/debug/duet}
model=${2:-smollm2}
shift $(($# < 2 ? $# : 2))
clients=("$@")
if [ ${#clients[@]} = 0 ]; then
    for script in tests/clients/*.py; do
        # It starts the program itself.
        [ "$(basename "$script")" = mcp_client.py ] || clients+=("$(basename "$script" .py)")
    done
fi

log=$(mktemp)
home=$(mktemp -d)
"$duet" serve "$model" --port 0 --history off 2>"$log" &
server=$!
trap 'kill -KILL "$server" 2>/dev/null || true; rm -rf "$log" "$home"' EXIT
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

failed=()
for client in "${clients[@]}"; do
    script=tests/clients/$client.py
    needs=$(sed -n 's/^    pip install //p' "$script" | head -1)
    packages=$target/python/$client-$(echo "$needs" | cat - tests/clients/requirements.txt | sha256sum | cut -c1-12)
    if [ ! -d "$packages" ]; then
        rm -rf "$packages.part"
        # shellcheck disable=SC2086
        python3 -m pip install --quiet --disable-pip-version-check --no-warn-conflicts --root-user-action ignore \
            --target "$packages.part" $needs
        mv "$packages.part" "$packages"
    fi
    # With `/v1` or without it, as the script says.
    suffix=$(sed -n "s#^    python $script http://127.0.0.1:8080##p" "$script" | head -1)
    echo "== $client"
    env -i PATH="$PATH" HOME="$home" PYTHONPATH="$packages" python3 "$script" "$url$suffix" || failed+=("$client")
done
if [ ${#failed[@]} -gt 0 ]; then
    echo "failed: ${failed[*]}"
    exit 1
fi
echo "all clients passed"
