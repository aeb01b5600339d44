#!/usr/bin/env bash
# Sees to it that there is a Vulkan driver, for the tests of GPUs: where there is none, Mesa's, which is a program on the
# processor, is installed; for that one has to be root on Debian or Ubuntu.
set -euo pipefail

for folder in /usr/share/vulkan/icd.d /etc/vulkan/icd.d "$HOME/.local/share/vulkan/icd.d"; do
    if compgen -G "$folder/*.json" >/dev/null; then
        exit
    fi
done
if [ "$(id -u)" != 0 ] || ! command -v apt-get >/dev/null; then
    echo "error: the tests of GPUs want a Vulkan driver, Debian's mesa-vulkan-drivers for example: install one" >&2
    exit 1
fi
apt-get update --quiet
apt-get install --quiet --yes --no-install-recommends libvulkan1 mesa-vulkan-drivers
