#!/usr/bin/env python3
"""Prints what docs/papers/agent-xpu.md tells of `duet report agent-xpu`, from the report.json that it wrote: the table,
and how often an uncertain constant turns a result round.

    duet report agent-xpu --out DIR && scripts/report_table.py DIR/report.json
"""

import json
import sys

ROWS = json.load(open(sys.argv[1])) if len(sys.argv) == 2 else sys.exit(__doc__)
SIZES = ("3B", "8B")


def number(value, digits):
    return f"{value:.{digits}f}".replace("-", "−")


def cell(size, quantity, setting, digits, unit, figure=None):
    """A figure with its lowest and highest; of preemptions the longest counts."""
    for row in ROWS:
        has = all(part in row["setting"] for part in setting.split("|"))
        fits = has and row["setting"].startswith(size) and row["quantity"].startswith(quantity)
        if fits and figure in (None, row["figure"]) and "predicted" in row:
            value = row["high"] if quantity.startswith("preemption") else row["predicted"]
            text = f"{number(value, digits)}{unit} ({number(row['low'], digits)} to {number(row['high'], digits)})"
            if figure == "Fig. 11" and quantity.startswith("reactive"):
                busy, drain = row["baseline_utilisation_pct"], row["baseline_drain_s"]
                text += f"; baseline busy {busy:.0f} %, drain {drain:.0f} s"
            return text
    return "–"


def line(name, quantity, setting, digits, unit, paper="", figure=None):
    cells = [cell(size, quantity, setting, digits, unit, figure) for size in SIZES]
    print(f"| {name} | {' | '.join(cells)} | {paper} |")


def overload(name, setting, paper=""):
    def bounds(size):
        rows = (row for row in ROWS if row["figure"] == "Fig. 10" and row["quantity"].startswith("tokens"))
        values = [r["predicted"] for r in rows if r["setting"].startswith(size) and setting in r["setting"]]
        return f"{min(values):.2f} to {max(values):.2f} ×"

    print(f"| tokens a second in overload, three data sets: {name} | {' | '.join(map(bounds, SIZES))} | {paper} |")


print("| | 3B | 8B | paper |\n| --- | --- | --- | --- |")
for policy, aim in (("duet", "aim: at most 1.3 ×"), ("agent-xpu", ""), ("igpu-batching", "")):
    name = f"reactive mean at 3 + 10, over alone: `{policy}`"
    line(name, "reactive mean over alone", f"3 + 10 a minute, {policy}", 2, " ×", aim)
name = "growth of the reactive mean from 3 + 4 to 3 + 10: `agent-xpu`"
line(name, "growth", "3 + 4|agent-xpu", 0, " %", "+19 %, +49 %")
line("the same: `duet`", "growth", "3 + 4|, duet", 0, " %")
xpu = "3 + 6 a minute, agent-xpu"
name = "reactive mean at 3 + 6 against the iGPU baseline: `agent-xpu`"
line(name, "reactive mean", xpu, 0, " %", "−93.84 %, −96.01 %", "Fig. 11")
paper = "−0.3 to −34.4 %, −6.1 to −58.7 %"
line("proactive mean, the same", "proactive mean", xpu, 0, " %", paper, "Fig. 11")
ours = "3 + 6 a minute, duet against"
line("`duet` against `agent-xpu` at 3 + 6: reactive mean", "reactive mean", ours, 0, " %", figure="beyond")
line("the same: proactive mean", "proactive mean", ours, 0, " %", figure="beyond")
name = "the iGPU's time at 3 + 6, `agent-xpu` against the iGPU baseline"
line(name, "iGPU utilisation", "agent-xpu, against igpu", 0, " %", "−37.1 %")
line("the same, against the serial baseline", "iGPU utilisation", "agent-xpu, against serial", 0, " %", "−32.5 %")
name = "energy per token at 3 + 6, `agent-xpu` against the iGPU baseline"
line(name, "energy per token", "agent-xpu, against igpu", 1, " %", "−26.8 %")
line("longest preemption at 3 + 6: `agent-xpu`", "preemption, longest", "agent-xpu", 0, " ms", "below 100 ms")
line("reactive prompts wait at 3 + 6: `agent-xpu`", "reactive pending prefill", "agent-xpu", 2, " s", "0.048 s")
overload("`agent-xpu` over `igpu-batching`", "agent-xpu over igpu-batching", "1.2 to 2.4 ×")
overload("`agent-xpu` over `serial`", "agent-xpu over serial", "1.4 to 4.9 ×")
overload("`agent-xpu` over `cpu-batching`", "agent-xpu over cpu-batching", "up to 3.9 ×")
overload("`duet` over `igpu-batching`", "duet over igpu-batching")

print()
for row in ROWS:
    if row["figure"] == "sensitivity" and row["quantity"].startswith("ends"):
        print(f"{row['setting'][:2]}, {row['quantity']}: {row['predicted']:.0f}")
