#!/usr/bin/env bash
# Runs every test, with a real model: scripts/test.sh [OPTION of the test runner ...]
#
# The runner is cargo-nextest if it is there, else cargo test. The model is DUET_TEST_MODEL, or else the default model,
# which is downloaded once. Tests on long texts also want DUET_WORKLOADS, a folder of more workloads; one next to the
# checkout is found by itself. Tests of accelerators want DUET_RT, a folder that scripts/runtimes.sh fills. Tests that lack
# what they want are skipped; which ones, and why, is told at the end. DUET_REQUIRE makes failures of them: see
# crates/testing. Models of users' sizes have a script of their own, test-real-models.sh. Without a network, `cargo test
# --workspace` runs all tests that need no model.
set -euo pipefail
cd "$(dirname "$0")/.."

# Everything at once: building the program alone would choose other features and compile its dependencies twice.
cargo build --workspace --all-targets
DUET_TEST_MODEL=$(scripts/test-model.sh)
export DUET_TEST_MODEL
if [ -z "${DUET_WORKLOADS:-}" ] && [ -e ../shared/workloads/corpus.txt ]; then
    DUET_WORKLOADS=$(cd ../shared/workloads && pwd)
    export DUET_WORKLOADS
fi
export DUET_REQUIRE=${DUET_REQUIRE:-model}
echo "model: $DUET_TEST_MODEL"

# Whoever names the file tells what is in it.
if [ -z "${DUET_SKIPS:-}" ]; then
    DUET_SKIPS=$(mktemp)
    export DUET_SKIPS
    trap 'scripts/skips.sh "$DUET_SKIPS"; rm -f "$DUET_SKIPS"' EXIT
fi
if cargo nextest --version >/dev/null 2>&1; then
    cargo nextest run --no-fail-fast "$@"
else
    cargo test --no-fail-fast "$@"
fi
