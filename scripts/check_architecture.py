#!/usr/bin/env python3
"""Checks that ARCHITECTURE.md tells the dependencies that the workspace has: no more, no fewer.

The block of lines `crate → crates` lists the arrows between crates; a table has one row for each dependency from
outside, `| name | crates | why |`. Tests' dependencies are in the same table. Reads what `cargo metadata` says.
"""

import json
import pathlib
import re
import subprocess
import sys

ROOT = pathlib.Path(__file__).resolve().parent.parent
CORE = ("types", "scheduler", "speculate", "moe")
# Derives, and a hash table: nothing that asks the world.
CORE_MAY_USE = ("serde", "hashbrown")
# What a crate may use at most that is not of the core and asks the world nothing either.
MAY_USE = {crate: CORE_MAY_USE for crate in CORE} | {"agents": ("llguidance", "serde_json", "thiserror")}


def main():
    text = (ROOT / "ARCHITECTURE.md").read_text()
    told_arrows = {match[1]: set(match[2].split()) for match in re.finditer(r"^(\w+) +→(.*)$", text, re.MULTILINE)}
    rows = re.finditer(r"^\| `([\w-]+)` \| ([\w, ]+) \|", text, re.MULTILINE)
    told_outside = {match[1]: set(match[2].split(", ")) for match in rows}

    arrows, outside, core = {}, {}, {crate: set() for crate in MAY_USE}
    for package in metadata()["packages"]:
        crate = short(package["name"])
        arrows[crate] = set()
        for dependency in package["dependencies"]:
            name = dependency["name"]
            is_normal = dependency["kind"] is None
            if crate in MAY_USE and is_normal and short(name) not in CORE and name not in MAY_USE[crate]:
                core[crate].add(name)
            if dependency.get("path"):
                arrows[crate].add(short(name))
            else:
                outside.setdefault(name, set()).add(crate)

    problems = differences("arrows of", told_arrows, arrows) + differences("crates that use", told_outside, outside)
    # What the core cannot reach, it cannot come to depend on.
    for crate in MAY_USE:
        if beyond := core[crate]:
            problems.append(f"{crate} depends on {', '.join(sorted(beyond))}: it is to know nothing of the world")
    for problem in problems:
        print(f"error: {problem}", file=sys.stderr)
    if problems:
        sys.exit("see ARCHITECTURE.md, `Arrows` and `Dependencies`")
    print(f"{len(arrows)} crates and {len(outside)} dependencies are as ARCHITECTURE.md says")


def metadata():
    command = ["cargo", "metadata", "--no-deps", "--format-version", "1", "--locked"]
    return json.loads(subprocess.run(command, cwd=ROOT, check=True, stdout=subprocess.PIPE).stdout)


def short(name):
    return name.removeprefix("duet-")


def differences(what, told, found):
    def shown(names):
        return "not listed" if names is None else ", ".join(sorted(names)) or "none"

    return [
        f"{what} {name}: ARCHITECTURE.md says {shown(told.get(name))}, the workspace says {shown(found.get(name))}"
        for name in sorted(told.keys() | found.keys())
        if told.get(name) != found.get(name)
    ]


if __name__ == "__main__":
    main()
