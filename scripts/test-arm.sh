#!/usr/bin/env bash
# The tests of the kernels on ARM, emulated, once on every instruction set of ARM that they have, and what a part of the
# gate on the quality of answers and the models of `transformers` say there: scripts/test-arm.sh
#
# Optimised as in a release, which takes less time together; what only checked code notices is noticed on x86.
#
# What is missing of the target, its linker and libc and the emulator is installed, for which one has to be root on Debian
# or Ubuntu. On an ARM machine nothing is emulated: there scripts/test-isas.sh does this.
set -euo pipefail
cd "$(dirname "$0")/.."

if [ "$(uname -m)" = aarch64 ]; then
    exec scripts/test-isas.sh
fi
target=aarch64-unknown-linux-gnu
libc=/usr/aarch64-linux-gnu

if ! command -v aarch64-linux-gnu-gcc >/dev/null || ! command -v qemu-aarch64 >/dev/null || [ ! -e $libc/lib/libc.so.6 ]; then
    packages="gcc-aarch64-linux-gnu libc6-dev-arm64-cross qemu-user"
    if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
        echo "error: the tests on ARM want Debian's packages $packages, or the like: install them" >&2
        exit 1
    fi
    apt-get update --quiet
    # shellcheck disable=SC2086
    apt-get install --quiet --yes --no-install-recommends $packages
fi
rustup target add $target

export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_LINKER=aarch64-linux-gnu-gcc
export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_GNU_RUNNER="qemu-aarch64 -L $libc -cpu max"

sets=$(cargo run --quiet --profile optimised --target $target -p duet-kernels --example isas)
if ! grep -q '^neon-i8mm here$' <<<"$sets"; then
    echo "error: this emulator lacks what the kernels want; they have" $sets >&2
    exit 1
fi
# Every test compares what it computes on all of them; this is what is chosen where it computes on one.
for isa in $(sed -n 's/^\(neon.*\) here$/\1/p' <<<"$sets"); do
    echo "== $isa"
    DUET_ISA=$isa cargo test --quiet --profile optimised --target $target -p duet-kernels --lib --test matmul --test attention --test experts
done
# These go through all sets of the machine by themselves.
echo "== whole models"
cargo test --quiet --profile optimised --target $target -p duet-model --lib -- exact::tests
