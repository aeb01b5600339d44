#!/usr/bin/env bash
# Whether the code is that of the systems which no test runs on, too: scripts/check-targets.sh [TARGET ...]
#
# All crates but the binary, whose downloads bring `ring`: it is partly C and assembly, for which a compiler for the target
# would have to be here. GPUs, which are reached by Metal and DirectX 12 there, are checked with their crate. (`duet-bench`
# has HTTP without TLS, as long as the binary is not among what is checked.)
set -euo pipefail
cd "$(dirname "$0")/.."

if [ $# -eq 0 ]; then
    set -- aarch64-apple-darwin x86_64-pc-windows-msvc
fi
rustup target add "$@"
for target in "$@"; do
    echo "== $target"
    cargo check --workspace --exclude duet --target "$target"
done
