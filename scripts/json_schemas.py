"""Holds what answers can be by the schemas of the official JSON-Schema-Test-Suite against these schemas.

    json_schemas.py SUITE PROGRAM [ARGUMENT…]

SUITE is a folder of the suite's tests (`tests/draft2020-12`); the program is `crates/server/examples/schemas.rs` with its
arguments. For each keyword one line: how many schemas there are, how many are held to, how many are refused and why, how
many random answers did not come to an end, and what was violated. Violated is an accepted schema by which an answer was
written that does not fit it, or by which a text would be an answer that does not fit it by the suite. Exits non-zero if
any is, or if a refusal names neither a keyword nor a reference.
"""

import json
import pathlib
import re
import subprocess
import sys

from decimal import Decimal
from jsonschema import Draft202012Validator, ValidationError
from jsonschema.validators import extend

# Refusals that name something else: no answer fits the schema, or it is too large to be worked out.
UNSATISFIABLE = re.compile("nothing finite fits it|nsatisfiable|schema is false|is greater than|empty|no match")
# As JavaScript has them; to Python digits and letters are those of all alphabets.
SPACES = r"\t\n\v\f\r \u00a0\u1680\u2000-\u200a\u2028\u2029\u202f\u205f\u3000\ufeff"
CLASSES = {"d": "[0-9]", "D": "[^0-9]", "w": "[A-Za-z0-9_]", "W": "[^A-Za-z0-9_]", "s": f"[{SPACES}]", "S": f"[^{SPACES}]"}
ROW = "{:<26}{:>9}{:>9}{:>9}{:>9}{:>8}{:>10}"


def main():
    suite, *program = sys.argv[1:]
    groups = []
    for path in sorted(pathlib.Path(suite).rglob("*.json")):
        if path.parent.name != "format":
            groups += [(path.stem, group) for group in json.loads(path.read_text())]
    lines = [{"schema": group["schema"], "texts": [json.dumps(test["data"], ensure_ascii=False) for test in group["tests"]]}
             for _, group in groups]
    told = subprocess.run(program, input="".join(json.dumps(line) + "\n" for line in lines), text=True, check=True,
                          stdout=subprocess.PIPE).stdout.splitlines()
    assert len(told) == len(groups), f"{len(told)} answers for {len(groups)} schemas"

    counts, reasons, violations, unnamed = {}, {}, [], []
    for (keyword, group), line in zip(groups, told):
        count = counts.setdefault(keyword, dict.fromkeys(("schemas", "held", "refused", "answers", "cut", "violated"), 0))
        result = json.loads(line)
        count["schemas"] += 1
        if "refused" in result:
            count["refused"] += 1
            why = named(result["refused"])
            reasons.setdefault(keyword, {}).setdefault(why, 0)
            reasons[keyword][why] += 1
            if why is None:
                unnamed.append((keyword, group, result["refused"]))
            continue
        count["held"] += 1
        count["answers"] += len(result["answers"])
        count["cut"] += result["cut"]
        if wrong := list(wrong_answers(group, result)):
            count["violated"] += 1
            violations.append((keyword, group, wrong))

    print(ROW.format("keyword", "schemas", "held to", "refused", "answers", "no end", "violated"), " refused for")
    for keyword, count in counts.items():
        why = ", ".join(f"{name} ({number})" for name, number in sorted(reasons.get(keyword, {}).items(), key=str))
        print(ROW.format(keyword, *count.values()), "", why)
    print(ROW.format("all", *(sum(count[name] for count in counts.values()) for name in next(iter(counts.values())))))
    for keyword, group, wrong in violations:
        print(f"violated: {keyword}, {group['description']}: {json.dumps(group['schema'])[:300]}")
        for answer, why in wrong[:3]:
            print(f"    {answer[:100]!r}: {why[:150]}")
    for keyword, group, refusal in unnamed:
        print(f"refused without a name: {keyword}, {group['description']}: {json.dumps(group['schema'])[:300]}\n    {refusal}")
    sys.exit(1 if violations or unnamed else 0)


def named(refusal):
    """What a refusal blames: a keyword, a reference or the whole."""
    if "refers to '" in refusal:
        return "a reference out of it"
    if found := re.search(r"uses '([^']+)'", refusal):
        return found[1]
    if found := re.search(r"'([a-z][A-Za-z]+)'", refusal.partition(": ")[2]):
        return found[1]
    if UNSATISFIABLE.search(refusal):
        return "nothing fits it"
    return None


def exact(text):
    """JSON with decimal numbers, so that multiples are those that are written."""
    return json.loads(text, parse_float=Decimal)


def is_integer(_, value):
    return not isinstance(value, bool) and (isinstance(value, int) or isinstance(value, Decimal) and value % 1 == 0)


def pattern(_, pattern, text, schema):
    if isinstance(text, str):
        python = re.sub(r"\\(.)", lambda found: CLASSES.get(found[1], found[0]), pattern)
        if not re.search(python, text):
            yield ValidationError(f"{text!r} does not match {pattern!r}")


Validator = extend(Draft202012Validator, {"pattern": pattern},
                   type_checker=Draft202012Validator.TYPE_CHECKER.redefine("integer", is_integer))


def wrong_answers(group, result):
    validator = Validator(exact(json.dumps(group["schema"])))
    for answer in result["answers"]:
        try:
            value = exact(answer)
        except ValueError as error:
            yield answer, f"no JSON: {error}"
            continue
        try:
            error = next(validator.iter_errors(value), None)
        except re.error:
            # An expression of JavaScript's that Python cannot read: here the suite's own verdicts have to do.
            continue
        if error is not None:
            yield answer, error.message
    for test, admitted in zip(group["tests"], result["admitted"]):
        if admitted and not test["valid"]:
            yield json.dumps(test["data"]), f"{test['description']}: not valid, by the suite"


main()
