# What scripts have in common that ask a running server; they source it. Sets `target`, the target directory.
# shellcheck shell=bash

target=$(cargo metadata --no-deps --format-version 1 | sed -n 's/.*"target_directory":"\([^"]*\)".*/\1/p')

# Installs packages into a folder, quietly: install_into FOLDER PACKAGE...
install_into() {
    python3 -m pip install --quiet --disable-pip-version-check --no-warn-conflicts --root-user-action ignore --target "$@" >&2
}

# Prints the folder of a Python package in the target directory, where it is installed once.
python_package() {
    local folder=$target/python/$1
    if [ ! -d "$folder" ]; then
        rm -rf "$folder.part"
        install_into "$folder.part" "$1"
        mv "$folder.part" "$folder"
    fi
    echo "$folder"
}

# Starts a server on a free port: serve PROGRAM MODEL [OPTION...]. Sets `server`, its process, `url`, its address, and `log`,
# the file of what it says. Whoever calls this ends it.
serve() {
    local program=$1
    shift
    log=${log:-$(mktemp)}
    "$program" serve "$@" --port 0 --history off 2>"$log" &
    server=$!
    url=
    # It tells its address once it listens and the model is loaded.
    for _ in $(seq 1200); do
        url=$(sed -n 's/.* is served at \(http[^ ]*\) .*/\1/p' "$log")
        if [ -n "$url" ] || ! kill -0 "$server" 2>/dev/null; then
            break
        fi
        sleep 0.5
    done
    if [ -z "$url" ]; then
        cat "$log" >&2
        echo "the server did not start" >&2
        exit 1
    fi
}
