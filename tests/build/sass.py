#!/usr/bin/env python3
"""What the machine code of the kernels for one token must keep to, read from `cuobjdump -sass -arch sm_90 gemv.o` on stdin.

Weights must be on their way before a kernel waits for the one before it (ptxas has moved such loads), and the loop over them may
not take more instructions for 16 bytes of a lane than it did when the limits were noted. Exit code 1 where a kernel does not.
"""

import re
import sys

FIRST_LOADS = 8
# Instructions of the loop for 16 bytes of a lane, by kind of codes and rows of 16 of a block: Codes (quant/weight.h), scales of
# groups. 2026-11-24, CUDA 13.0: 34.2, 35.4; 32.5, 36.4; 14.5, 17.4.
LIMITS = {("4", "16", "1", "2"): 36, ("4", "16", "1", "1"): 38, ("3", "16", "0", "2"): 35, ("3", "16", "0", "1"): 39,
          ("2", "8", "0", "2"): 16, ("2", "8", "0", "1"): 19}  # fmt: skip
NAME = re.compile(r"gemv_kernel.*CodesE(\d)ELi(\d+)ELb(\d)ELb0EEELi(\d)ELb0E")


def functions(lines):
    """(name, [(address, instruction)]) of each."""
    name, code = None, []
    for line in lines:
        if match := re.search(r"Function : (\S+)", line):
            if name:
                yield name, code
            name, code = match[1], []
        elif match := re.search(r"/\*([0-9a-f]{4,5})\*/\s+(.*?);", line):
            code.append((int(match[1], 16), match[2]))
    if name:
        yield name, code


def first_loads(code):
    """Loads of weights before the kernel waits."""
    count = 0
    for _, text in code:
        if "ACQBULK" in text:
            break
        count += bool(re.search(r"LDG\.E.*NA", text))
    return count


def loop_cost(code):
    """Instructions for 16 bytes of the shortest loop that loads weights and multiplies."""
    index = {address: i for i, (address, _) in enumerate(code)}
    costs = []
    for i, (_, text) in enumerate(code):
        match = re.search(r"BRA (?:!?U?P\d+, )?0x([0-9a-f]+)", text)
        begin = index.get(int(match[1], 16), i) if match else i
        body = [t for _, t in code[begin : i + 1]]
        size = sum((16 if ".128" in t else 8) for t in body if re.search(r"LDG\.E.*NA", t))
        if size and any("MMA" in t for t in body):
            costs.append(16 * len(body) / size)
    return min(costs, default=float("inf"))


def main():
    bad, seen = [], set()
    for name, code in functions(sys.stdin):
        if (count := first_loads(code)) < FIRST_LOADS:
            bad.append(f"{name}: {count} loads of weights before it waits (expected at least {FIRST_LOADS})")
        match = NAME.search(name)
        if match and (limit := LIMITS.get(match.groups())):
            seen.add(match.groups())
            if (cost := loop_cost(code)) > limit:
                bad.append(f"{name}: {cost:.1f} instructions for 16 bytes of weights (expected at most {limit})")
    bad += [f"no kernel for codes {kind}" for kind in LIMITS.keys() - seen]
    print("\n".join(f"sass: {line}" for line in bad) or f"sass: good, {len(seen)} loops counted")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
