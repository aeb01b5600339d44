#!/usr/bin/env bash
# Installs the runtimes of accelerators for the tests, once, and prints their folder: $DUET_RT, or one in the cache folder.
#
# 0.5 GB. Qualcomm's HTP is emulated on x86_64. Needs python3 with pip.
set -euo pipefail
cd "$(dirname "$0")/.."

# The versions that duet names to its users; numpy serves the tests that run toolchains in Python.
pinned=$(grep -oE '[a-z-]+==[0-9.]+' crates/runtimes/src/package.rs | sort -u)
requirements="$pinned numpy==2.4.6"
key=$(echo $requirements | sha256sum | cut -c1-12)
folder=${DUET_RT:-${XDG_CACHE_HOME:-$HOME/.cache}/duet-tests/runtimes-$key}
if [ ! -e "$folder/installed-$key" ]; then
    # shellcheck disable=SC2086
    python3 -m pip install --quiet --no-deps --upgrade --target "$folder" $requirements >&2
    touch "$folder/installed-$key"
fi
echo "$folder"
