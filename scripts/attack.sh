#!/usr/bin/env bash
# Attacks a server of its own with requests that are made to cost much, and says what each costs:
#
#     scripts/attack.sh [DUET [MODEL]]
#
# Starts the program (by default the release build) on a free port of the loopback, so that nothing else is touched, runs
# scripts/attack.py against it and stops it. Takes about two minutes. Needs python3.
set -euo pipefail
cd "$(dirname "$0")/.."

target=$(cargo metadata --no-deps --format-version 1 | sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')
duet=${1:-$target/release/duet}
if [ ! -x "$duet" ]; then
    echo "no program at $duet: cargo build --release -p duet" >&2
    exit 2
fi
exec python3 scripts/attack.py "$duet" ${2:+"$2"}
