#!/usr/bin/env bash
# Tests with models of users' sizes, against llama.cpp and on long prompts: scripts/test-real-models.sh [0.5b|1.5b|gemma|minilm|all]
#
# The models are downloaded once (scripts/real_models.py). The code is optimised as in a release, without the checks that
# other tests have. All of it takes half an hour on two cores, most of it for prompts of 24k tokens.
set -euo pipefail
cd "$(dirname "$0")/.."

case ${1:-all} in
    0.5b) module=qwen_0_5b:: ;;
    1.5b) module=qwen_1_5b:: ;;
    gemma) module=gemma_270m:: ;;
    minilm) module=minilm:: ;;
    all) module= ;;
    *) sed -n 2p "$0" >&2; exit 2 ;;
esac
DUET_REAL_MODELS=$(scripts/real_models.py "${1:-all}")
export DUET_REAL_MODELS DUET_REQUIRE=real-models
if cargo nextest --version >/dev/null 2>&1; then
    # The packages of test-optimised.sh, so that nothing is compiled twice.
    exec cargo nextest run --cargo-profile optimised -p duet-kernels -p duet-model -p duet-engine --no-fail-fast \
        --ignore-default-filter --success-output immediate -E "binary(real_models) & test(/^$module/)"
fi
exec cargo test --profile optimised -p duet-model --test real_models --no-fail-fast -- --test-threads 1 --nocapture $module
