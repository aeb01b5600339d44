#!/usr/bin/env bash
# Evaluates the server by EleutherAI's lm-eval: scripts/lm-eval.sh [--model MODEL] [--limit N] [--shortest] [--against URL] [--tasks TASKS] [--ways WAYS] [--duet PROGRAM]
#
# Starts the program (by default the release build) with the model (by default the default one) on a free port, and lets
# lm-eval ask it by text completions, by chat, and for the likeliest of given answers; WAYS are some of `completions`, `chat`
# and `likelihood`, TASKS some of `boolq`, `hellaswag` and `ruler`, between commas. --shortest takes the shortest items of a
# task, not the first. Prints how many items of each task are right and how long they took. With --against the
# same is asked of another server of OpenAI's API, which is to have the same model (llama.cpp's, for one), and the table says
# how many answers are the same. The items are those of the folder DUET_WORKLOADS (see scripts/test.sh); the tasks are in
# scripts/eval. The package is installed once, into the target directory; nothing else is fetched. Needs python3 with pip.
set -euo pipefail
cd "$(dirname "$0")/.."

. scripts/serving.sh
duet=$target/release/duet
model=smollm2
against=()
options=()
while [ $# -gt 0 ]; do
    case $1 in
        --model) model=$2 ;;
        --against) against=("other=${2%/}") ;;
        --duet) duet=$2 ;;
        --shortest) options+=("$1"); shift; continue ;;
        --limit | --tasks | --ways | --out) options+=("$1" "$2") ;;
        *) sed -n 2p "$0" >&2; exit 2 ;;
    esac
    shift 2
done
if [ -z "${DUET_WORKLOADS:-}" ] && [ -e ../shared/workloads/corpus.txt ]; then
    DUET_WORKLOADS=$(cd ../shared/workloads && pwd)
fi
: "${DUET_WORKLOADS:?is to name the folder of workloads}"

packages=$(python_package 'lm_eval[api]==0.4.13')

home=$(mktemp -d)
server=
log=$(mktemp)
trap 'kill -KILL "$server" 2>/dev/null && wait "$server" 2>/dev/null || true; rm -rf "$log" "$home"' EXIT
serve "$duet" "$model"

env PYTHONPATH="$packages" DUET_WORKLOADS="$DUET_WORKLOADS" HF_HOME="$home" HF_HUB_OFFLINE=1 HF_DATASETS_OFFLINE=1 \
    LMEVAL_LOG_LEVEL=ERROR TQDM_DISABLE=1 python3 scripts/eval/run.py "${options[@]}" "duet=${url%/v1}" "${against[@]}"
