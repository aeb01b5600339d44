#!/usr/bin/env bash
# A table of the tests that were skipped, and why: scripts/skips.sh FILE, where FILE is what DUET_SKIPS named to the tests.
set -euo pipefail

if [ ! -s "$1" ]; then
    echo "no test was skipped"
    exit
fi
# A test may ask twice for what it lacks.
sort -u "$1" | awk -F '\t' '
    { tests[$2 "\t" $3] = tests[$2 "\t" $3] "    " $1 "\n"; count[$2 "\t" $3]++ }
    END {
        for (why in tests) {
            split(why, part, "\t")
            printf "%d skipped for want of %s: %s\n%s", count[why], part[1], part[2], tests[why]
        }
    }'
