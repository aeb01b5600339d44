#!/usr/bin/env bash
# The kernels' tests, and those of models that compare bits, once on every instruction set that this machine has:
# scripts/test-isas.sh [INSTRUCTION SET ...]
#
# Which sets there are, and which of them are here, the kernels say themselves. One that is asked for by name and is not
# here is an error; otherwise it is named as not run. AMX, where there is none, is run by the programs that bring an emulator
# of it, wherever there is AVX-512.
set -euo pipefail
cd "$(dirname "$0")/.."

# The whole workspace, as scripts/test.sh builds it: a part of it would choose other features and be compiled again.
tests() {
    if cargo nextest --version >/dev/null 2>&1; then
        cargo nextest run --workspace --status-level fail \
            -E 'package(duet-kernels) | binary(golden) | binary(invariance)' "$@"
    else
        cargo test --quiet -p duet-kernels -p duet-model --lib \
            --test matmul --test attention --test experts --test golden --test invariance "$@"
    fi
}

# The programs that have an emulator of AMX.
tests_of_amx() {
    if cargo nextest --version >/dev/null 2>&1; then
        cargo nextest run --workspace --status-level fail \
            -E 'package(duet-kernels) & (binary(matmul) | binary(experts) | binary(matrix_unit))'
    else
        cargo test --quiet -p duet-kernels --test matmul --test experts --test matrix_unit
    fi
}

cargo build --workspace --all-targets
target=$(cargo metadata --no-deps --format-version 1 | sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')
sets=$("$target/debug/examples/isas")

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
    elif [ "$isa" = amx-int8 ] && grep -q '^avx512-vnni here$' <<<"$sets" && [ "$(uname -s)" = Linux ]; then
        echo "== $isa, emulated"
        DUET_ISA=$isa tests_of_amx </dev/null
    else
        echo "not run here: $isa"
    fi
done <<<"$sets"
