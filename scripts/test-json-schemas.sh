#!/usr/bin/env bash
# Holds answers by schemas against the official JSON-Schema-Test-Suite: scripts/test-json-schemas.sh [WALKS [SEED]]
#
# No model writes them: random walks through what the masks of the default model's vocabulary allow do (by default 20 for
# each schema), which go where no model would. Whatever they write has to fit its schema, whatever does not fit must not be
# allowed, and schemas that cannot be held to have to be refused by name. The suite and the validator are those of the
# Python package `jsonschema`, and are downloaded once. Takes a minute; needs cargo and python3 with pip.
set -euo pipefail
cd "$(dirname "$0")/.."

version=4.26.0
target=$(cargo metadata --no-deps --format-version 1 | sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')
packages=$target/python/jsonschema-$version
if [ ! -d "$packages" ]; then
    rm -rf "$packages.part"
    pip() { python3 -m pip "$@" --quiet --disable-pip-version-check; }
    pip install --root-user-action ignore --no-warn-conflicts --target "$packages.part" "jsonschema==$version"
    # The suite is in the source alone.
    pip download --no-deps --no-binary jsonschema --dest "$packages.part" "jsonschema==$version"
    tar -xzf "$packages.part/jsonschema-$version.tar.gz" -C "$packages.part" "jsonschema-$version/json/tests"
    mv "$packages.part" "$packages"
fi
model=$(scripts/test-model.sh)
cargo build --quiet -p duet-server --example schemas
PYTHONPATH=$packages python3 scripts/json_schemas.py "$packages/jsonschema-$version/json/tests/draft2020-12" \
    "$target/debug/examples/schemas" "$model" "${1:-20}" "${2:-1}"
