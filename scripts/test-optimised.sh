#!/usr/bin/env bash
# The tests of what computes and serves as a whole, in code that is optimised as in a release and has none of the checks that
# other tests have; among them those of one model of users' size that take no minutes. Other tests, and those of single
# functions, are run by test.sh.
#
# With DUET_SKIPS, the tests of test-real-models.sh that are left out here are written into that file.
set -euo pipefail
cd "$(dirname "$0")/.."

DUET_TEST_MODEL=$(scripts/test-model.sh)
DUET_REAL_MODELS=$(scripts/real_models.py 0.5b)
export DUET_TEST_MODEL DUET_REAL_MODELS
export DUET_REQUIRE=${DUET_REQUIRE:-model},real-models
packages=(-p duet-kernels -p duet-model -p duet-engine)
if ! cargo nextest --version >/dev/null 2>&1; then
    exec cargo test --profile optimised "${packages[@]}" --test '*' --no-fail-fast -- --skip gemma_270m:: --skip qwen_1_5b:: --skip needles
fi
here='binary(real_models) & test(/^qwen_0_5b::/) - test(/needles|8_bits/)'
cargo nextest run --cargo-profile optimised "${packages[@]}" --test '*' --no-fail-fast --ignore-default-filter \
    -E "not binary(real_models) + ($here)"
if [ -n "${DUET_SKIPS:-}" ]; then
    cargo nextest list --cargo-profile optimised "${packages[@]}" --test '*' --ignore-default-filter --message-format oneline \
        -E "binary(real_models) - ($here)" 2>/dev/null |
        sed 's/ /::/; s/$/\treal-models\tthey take minutes: scripts\/test-real-models.sh runs them/' >>"$DUET_SKIPS"
fi
