#!/usr/bin/env bash
# Tries the server with the clients that people use: scripts/test-clients.sh [--quick] [--duet PROGRAM] [--model MODEL] [CLIENT…]
#
# Runs the scripts of tests/clients, or those that are named (`ollama_client`), or with `--quick` those that need no model
# but the default one and little time. The first lines of each say what it is run with: packages, which are installed once
# into the target directory; a model other than the default one (`duet serve MODEL`), unless `--model` is given; and its
# address. For each model the program (by default the debug build) is started on a free port; asked to stop, it has to end
# with status 0. Clients have an environment of their own: a home that is empty, and no variable of yours. Needs python3
# with pip, and for some node with npm; exits non-zero if any check of any client failed.
set -euo pipefail
cd "$(dirname "$0")/.."

# Together below two minutes with the debug build, on two cores.
quick=(openai_client anthropic_messages responses openai_agents ollama_client langchain_ollama mcp_client)

. scripts/serving.sh
duet=$target/debug/duet
only=
clients=()
while [ $# -gt 0 ]; do
    case $1 in
        --quick) clients+=("${quick[@]}") ;;
        --duet) duet=$2; shift ;;
        --model) only=$2; shift ;;
        -*) sed -n 2p "$0" >&2; exit 2 ;;
        *) clients+=("$1") ;;
    esac
    shift
done
if [ ${#clients[@]} = 0 ]; then
    mapfile -t clients < <(cd tests/clients && ls | sed -n 's/\.\(py\|mjs\)$//p')
fi

log=$(mktemp)
home=$(mktemp -d)
server=
trap '[ -z "$server" ] || kill -KILL "$server" 2>/dev/null || true; rm -rf "$log" "$home"' EXIT

# What the first lines of a client's script say after these words.
told() {
    sed -n "s#^    $2##p" "$1" | head -1
}

script_of() {
    local script
    for script in tests/clients/"$1".py tests/clients/"$1".mjs; do
        if [ -f "$script" ]; then
            echo "$script"
            return
        fi
    done
    echo "there is no client $1" >&2
    return 1
}

model_of() {
    local script named
    script=$(script_of "$1")
    named=$(told "$script" "duet serve ")
    echo "${only:-${named:-smollm2}}"
}

# Prints the folder with the packages that a script needs.
packages_of() {
    local client=$1 script=$2 python node folder
    python=$(told "$script" "pip install ")
    node=$(told "$script" "npm install ")
    folder=$target/clients/$client-$(echo "$python|$node" | cat - tests/clients/requirements.txt | sha256sum | cut -c1-12)
    if [ ! -d "$folder" ]; then
        rm -rf "$folder.part"
        mkdir -p "$folder.part"
        # shellcheck disable=SC2086
        [ -z "$python" ] || install_into "$folder.part" $python
        # shellcheck disable=SC2086
        [ -z "$node" ] || npm install --silent --no-audit --no-fund --prefix "$folder.part" $node >&2
        mv "$folder.part" "$folder"
    fi
    echo "$folder"
}

start() {
    serve "$duet" "$1"
    python3 - "$url/health" <<'PYTHON'
import json, sys, urllib.request
direct = urllib.request.build_opener(urllib.request.ProxyHandler({}))
assert json.load(direct.open(sys.argv[1], timeout=10)) == {"status": "ok"}
PYTHON
}

stop() {
    local status=0
    kill -TERM "$server"
    wait "$server" || status=$?
    server=
    if [ "$status" != 0 ]; then
        cat "$log" >&2
        failed+=("the server, which ended with status $status")
    fi
}

# Runs a client, and says how long it took.
try() {
    local client=$1 script packages where began=$SECONDS status=0
    script=$(script_of "$client")
    echo "== $client, with $2"
    packages=$(packages_of "$client" "$script") || { failed+=("$client, whose packages cannot be installed"); return 0; }
    rm -rf "$home"
    mkdir "$home"
    # The address with `/v1` or without it, or the program, as the script says.
    where=$url$(told "$script" "[a-z0-9]* $script http://127.0.0.1:8080")
    [ -z "$(told "$script" "[a-z0-9]* $script target/")" ] || where="$duet $("$duet" pull "$2")"
    case $script in
        # A module's packages are found beside it.
        *.mjs) cp "$script" "$packages/" && set -- node "$packages/$(basename "$script")" ;;
        *) set -- python3 "$script" ;;
    esac
    # shellcheck disable=SC2086
    env -i PATH="$packages/node_modules/.bin:$PATH" HOME="$home" PYTHONPATH="$packages" \
        timeout 1200 "$@" $where || status=$?
    echo "   $client took $((SECONDS - began)) s"
    [ "$status" = 0 ] || failed+=("$client")
}

failed=()
models=$(for client in "${clients[@]}"; do model_of "$client"; done | sort -u)
for model in $models; do
    start "$model"
    for client in "${clients[@]}"; do
        [ "$(model_of "$client")" != "$model" ] || try "$client" "$model"
    done
    stop
done
if [ ${#failed[@]} -gt 0 ]; then
    printf 'failed: %s\n' "${failed[@]}"
    exit 1
fi
echo "all clients passed, and the server ended with status 0"
