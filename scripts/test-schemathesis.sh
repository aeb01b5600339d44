#!/usr/bin/env bash
# Holds a running server against its own description: scripts/test-schemathesis.sh [DUET [MODEL]]
#
# Starts the program (by default the debug build, with the default model) on a free port and lets Schemathesis ask what
# /openapi.json describes, with what it may be and with what it may not: no answer may be an error of the server, or of a
# status, a type or a shape that is not described, and what breaks the description must be refused. Three thousand requests,
# the same at every run, in a minute or two. The package is installed once, into the target directory. Needs python3 with pip. Exits
# non-zero if any check failed. SCHEMATHESIS has further options, such as `--seed 7 -n 100`.
set -euo pipefail
cd "$(dirname "$0")/.."

. scripts/serving.sh
duet=${1:-$target/debug/duet}
packages=$(python_package schemathesis==4.32.5)

folder=$(mktemp -d)
server=
log=$(mktemp)
trap 'kill -KILL "$server" 2>/dev/null && wait "$server" 2>/dev/null || true; rm -rf "$log" "$folder"' EXIT
# Answers end soon in a short context, whatever they are asked for.
serve "$duet" "${2:-smollm2}" --ctx 512

# What is not in this list asks for more than the description says: which of two fields may not be together, for one.
checks=not_a_server_error,status_code_conformance,content_type_conformance,response_schema_conformance
checks=$checks,response_headers_conformance,negative_data_rejection,unsupported_method
# shellcheck disable=SC2086
(cd "$folder" && env PYTHONPATH="$packages" SCHEMATHESIS_HOOKS="$OLDPWD/scripts/schemathesis_hooks.py" \
    python3 "$packages/bin/schemathesis" run "$url/openapi.json" --checks "$checks" --phases examples,coverage,fuzzing \
    --max-examples 15 --generation-deterministic --continue-on-failure --no-shrink \
    --request-timeout 60 --warnings off ${SCHEMATHESIS:-})

if ! kill -0 "$server" 2>/dev/null; then
    cat "$log" >&2
    echo "the server has ended" >&2
    exit 1
fi
