#!/usr/bin/env bash
# The tests of GPUs, and of the program that is built with them: scripts/test-gpu.sh [--program]
#
# With --program only the latter, for whoever runs test.sh as well, which has the others.
# They run on the adapter that DUET_TEST_GPU names (`gpu:0`, see `duet devices`), or else on the first: where there is no GPU,
# that is Mesa's program for the processor (scripts/vulkan.sh). The model is that of scripts/test.sh.
set -euo pipefail
cd "$(dirname "$0")/.."

scripts/vulkan.sh
# With all of the workspace, so that no dependency is compiled with other features than the other tests have.
cargo build --workspace --features duet/gpu --bin duet
DUET_TEST_MODEL=$(scripts/test-model.sh)
export DUET_TEST_MODEL
export DUET_REQUIRE=${DUET_REQUIRE:-model,gpu}
cargo test --workspace --features duet/gpu --no-fail-fast --test gpu --test best_tokens --test composition
if [ "${1:-}" != --program ]; then
    tests=(--test spans --test token_wise --test agreement --test layers)
    cargo test --workspace --features duet/gpu --no-fail-fast "${tests[@]}"
    cargo test --workspace --features duet/gpu --no-fail-fast --lib -- adapters:: best:: self_test::
fi
