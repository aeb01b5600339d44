#!/usr/bin/env bash
# The tests of accelerators with the runtime that they are for; scripts/test.sh runs them where there may be none, and
# they are skipped then. Needs python3 with pip; the runtime is kept in $DUET_RT, or in the cache folder.
set -euo pipefail
cd "$(dirname "$0")/.."

version=$(sed -n 's/^pub const VERSION: &str = "\(.*\)";$/\1/p' crates/openvino/src/find.rs)
DUET_RT=${DUET_RT:-${XDG_CACHE_HOME:-$HOME/.cache}/duet-tests/runtimes-$version}
export DUET_RT
if [ ! -d "$DUET_RT/openvino" ]; then
    python3 -m pip install --quiet --no-deps --target "$DUET_RT" "openvino==$version"
fi
if cargo nextest --version >/dev/null 2>&1; then
    # As scripts/test.sh built them.
    exec cargo nextest run --workspace --no-fail-fast -E 'package(duet-openvino) + package(duet-offload)'
fi
exec cargo test -p duet-openvino -p duet-offload --no-fail-fast
