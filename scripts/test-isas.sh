#!/usr/bin/env bash
# The kernels' tests, and those of models that compare bits, once on every instruction set that this machine has:
# scripts/test-isas.sh [INSTRUCTION SET ...]
#
# Which sets there are, and which of them are here, the kernels say themselves. One that is asked for by name and is not
# here is an error; otherwise it is named as not run.
set -euo pipefail
cd "$(dirname "$0")/.."

tests() {
    if cargo nextest --version >/dev/null 2>&1; then
        cargo nextest run -p duet-kernels -p duet-model --status-level fail \
            -E 'package(duet-kernels) | binary(golden) | binary(invariance)'
    else
        cargo test --quiet -p duet-kernels -p duet-model --lib \
            --test matmul --test attention --test experts --test golden --test invariance
    fi
}

sets=$(cargo run --quiet -p duet-kernels --example isas)

if [ $# -gt 0 ]; then
    for isa in "$@"; do
        echo "== $isa"
        DUET_ISA=$isa tests
    done
    exit
fi
while read -r isa where; do
    if [ "$where" = here ]; then
        echo "== $isa"
        # Not the loop's input.
        DUET_ISA=$isa tests </dev/null
    else
        echo "not run here: $isa"
    fi
done <<<"$sets"
