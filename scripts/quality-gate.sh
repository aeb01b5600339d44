#!/usr/bin/env bash
# Holds what answers lose by the kernels' roundings against the figures of record: scripts/quality-gate.sh [--record]
#
# The tests are crates/bench/tests/quality_gate, on the default model, and crates/model/src/exact/tests/every_type.rs, on a
# tiny model in each type of weights; scripts/test.sh runs them as well. With --record the figures are written anew, for a
# change of the arithmetic that is meant; what they were is in the history.
set -euo pipefail
cd "$(dirname "$0")/.."

case ${1:-} in
    '') ;;
    --record) export DUET_RECORD=1 ;;
    *) sed -n 2p "$0" >&2; exit 2 ;;
esac
DUET_TEST_MODEL=$(scripts/test-model.sh)
export DUET_TEST_MODEL
export DUET_REQUIRE=model
cargo test -p duet-bench --test quality_gate -- --nocapture
cargo test -p duet-model --lib every_type -- --nocapture
git diff --stat -- crates/bench/tests/quality_gate crates/model/src/exact/tests/every_type.json
