#!/usr/bin/env bash
# The tests of accelerators with the runtimes that they are for; scripts/test.sh runs them where there may be none, and
# they are skipped then. Needs python3 with pip, and the program built; the runtimes are kept in $DUET_RT, or in the cache
# folder: 0.5 GB. Qualcomm's HTP is emulated on x86_64.
set -euo pipefail
cd "$(dirname "$0")/.."

# The versions that duet names to its users; numpy serves the tests that run toolchains in Python.
pinned=$(grep -oE '[a-z-]+==[0-9.]+' crates/runtimes/src/package.rs | sort -u)
requirements="$pinned numpy==2.4.6"
key=$(echo $requirements | sha256sum | cut -c1-12)
DUET_RT=${DUET_RT:-${XDG_CACHE_HOME:-$HOME/.cache}/duet-tests/runtimes-$key}
export DUET_RT
if [ ! -e "$DUET_RT/installed-$key" ]; then
    # shellcheck disable=SC2086
    python3 -m pip install --quiet --no-deps --upgrade --target "$DUET_RT" $requirements
    touch "$DUET_RT/installed-$key"
fi
DUET_TEST_MODEL=$(scripts/test-model.sh)
export DUET_TEST_MODEL
if cargo nextest --version >/dev/null 2>&1; then
    # As scripts/test.sh built them.
    exec cargo nextest run --workspace --no-fail-fast -E 'package(duet-openvino) + package(duet-offload)
        + package(duet-qnn) + (package(duet-graphs) & binary(toolchains)) + (package(duet-bench) & binary(/graphs/))'
fi
cargo test -p duet-openvino -p duet-offload -p duet-qnn --no-fail-fast
cargo test -p duet-graphs --test toolchains --no-fail-fast
exec cargo test -p duet-bench --test graphs --test exact_graphs --test exchanged_graphs --test expert_graphs --no-fail-fast
