#!/usr/bin/env bash
# Prints the path of the model that tests use: DUET_TEST_MODEL, or else the default model, which is downloaded once. The
# program has to be built.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ -n "${DUET_TEST_MODEL:-}" ]; then
    echo "$DUET_TEST_MODEL"
else
    target=$(cargo metadata --no-deps --format-version 1 | sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')
    "$target/debug/duet" pull
fi
