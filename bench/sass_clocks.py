#!/usr/bin/env python3
"""How many clocks the loop of a kernel's matrix products takes on a multiprocessor of Hopper: its machine code, issued in order.

    cuobjdump -sass -arch sm_90 build/cuda/attend.o | bench/sass_clocks.py 'attend_tiles_kernelILNS0_9CacheKindE0ELi128E' --warps 2

--warps: of each of the four schedulers. A warp issues its instructions in order, when their registers are there and their unit is free; a
scheduler issues one a clock; the four share what moves shared memory. Latencies are estimates, and caches of instructions, conflicts of
banks, barriers and copies that are late are not looked at: a kernel will hardly be faster. The shortest way is taken that leaves out no
copy, product or barrier: without masks, caps and other rare cases.
"""

import argparse
import re
import sys
from collections import Counter, defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests/build"))
from sass import branch_target, functions  # noqa: E402

# Of mma.sync with products of 16 x 8 x 16 in F16: 63 % of the tensor cores' peak, and its latency (published: arXiv 2402.13499).
MMA_CLOCKS, MMA_LATENCY = 6.4, 33
# By name: an instruction's unit, the clocks that it keeps it, and those until its result is there. Units of 32 lanes take one clock, of
# 16 two and so on (CUDA C++ Programming Guide, throughput of arithmetic instructions, 9.0); latencies estimated after the same paper.
UNITS = {
    "HMMA": ("tensor", MMA_CLOCKS, MMA_LATENCY), "IMMA": ("tensor", MMA_CLOCKS, MMA_LATENCY),
    "LDS": ("shared", 1, 30), "LDSM": ("shared", 1, 33), "STS": ("shared", 1, 1), "LDGSTS": ("shared", 1, 1),
    "LDG": ("shared", 1, 600), "STG": ("shared", 1, 1), "LDC": ("constant", 1, 30), "ULDC": ("constant", 1, 30),
    "LDL": ("shared", 1, 30), "STL": ("shared", 1, 1), "SHFL": ("shared", 1, 24), "REDUX": ("alu", 2, 20), "MUFU": ("special", 8, 20),
    "F2F": ("special", 8, 14), "I2F": ("special", 8, 14), "F2I": ("special", 8, 14),
    "FFMA": ("fma", 1, 4), "FMUL": ("fma", 1, 4), "FADD": ("fma", 1, 4), "IMAD": ("fma", 2, 4),
    "S2R": ("alu", 2, 20), "VOTE": ("alu", 2, 12), "R2UR": ("alu", 2, 12),
}  # fmt: skip
OTHERS = ("alu", 2, 5)
QUEUE = 24  # clocks of requests that wait for shared memory before a scheduler does
WITHOUT_RESULT = {"STS", "STG", "STL", "LDGSTS", "RED", "BAR", "DEPBAR", "LDGDEPBAR", "WARPSYNC", "BRA", "BSSY", "BSYNC", "CALL",
                  "EXIT", "NOP"}  # fmt: skip
# Results: a predicate and a register or two predicates; a register, and where it is one a predicate behind it.
TWO_RESULTS = {"ISETP", "FSETP", "UISETP", "PLOP3", "UPLOP3", "VOTE", "HSETP2", "SHFL"}
WITH_CARRY = {"IADD3", "UIADD3", "LEA", "ULEA", "IMAD", "UIMAD", "LOP3", "ULOP3"}
PRODUCT = re.compile(r"[HI]MMA\.")
NEEDED = re.compile(r"[HI]MMA\.|LDSM|LDGSTS|BAR\.")
NEEDED_BESIDE = re.compile(r"LDGSTS|BAR\.")  # where the number of products is given


class Instruction:
    def __init__(self, text):
        guard, self.text = re.match(r"(@!?U?P\d+\s+)?(.*)", text).groups()
        name, _, rest = self.text.partition(" ")
        self.name = name.split(".")[0]
        operands = [part.strip() for part in rest.split(",")] if rest else []
        size = {"64": 2, "128": 4}.get((re.search(r"\.(64|128)\b", name) or [0, ""])[1], 1)
        if self.name == "LDSM":
            size = int((re.search(r"\.([24])$", name) or [0, 1])[1])
        self.unit, self.clocks, self.latency = UNITS.get(self.name, OTHERS)
        if self.unit == "shared" and self.name != "SHFL":
            self.clocks = size  # 128 bytes a clock, of 32 lanes with so many words each
        product = PRODUCT.match(name)
        results = 0 if self.name in WITHOUT_RESULT else 2 if self.name in TWO_RESULTS else 1
        if self.name in WITH_CARRY:
            results = 1 + sum(1 for operand in operands[1:3] if re.fullmatch(r"U?P\d+", operand))
        self.writes, self.reads = set(), set(re.findall(r"U?P\d+", guard or ""))
        for i, operand in enumerate(operands):
            if i < results and re.fullmatch(r"U?P(\d+|T)", operand):
                self.writes |= {operand} - {"PT", "UPT"}
            elif i < results and re.match(r"U?R\d", operand):
                words = 4 if product else size if self.name in ("LDS", "LDG", "LDSM", "LDC") else 2 if ".WIDE" in name else 1
                self.writes |= registers(operand, words)
            elif product:
                self.reads |= registers(operand, 2 if i == 2 else 4)
            else:
                last = i == len(operands) - 1
                words = size if last and self.name in ("STS", "STG") else 2 if ".64" in operand or last and ".WIDE" in name else 1
                for register in re.findall(r"U?R\d+", operand):
                    self.reads |= registers(register, words)
                self.reads |= set(re.findall(r"U?P\d+", operand))


def registers(operand, count):
    match = re.match(r"[-|~!]*(U?R)(\d+)", operand)
    return {f"{match[1]}{int(match[2]) + i}" for i in range(count)} if match else set()


def loop_of(code, products=None):
    """The shortest loop that copies to shared memory and multiplies, without what is skipped in most rounds: the shortest way that leaves
    out no copy, product or barrier, or with `products` the shortest one with so many products and all copies and barriers."""
    place = {address: i for i, (address, _) in enumerate(code)}
    target = [branch_target(text) for _, text in code]
    needed = NEEDED if products is None else NEEDED_BESIDE
    counted = [products is not None and PRODUCT.match(text) is not None for _, text in code]
    loops = []
    for end, (address, _) in enumerate(code):
        if target[end] is None or target[end] > address:
            continue
        # From the end to the beginning, by the products still to come: the number of instructions from there on, and the next of them.
        begin, wanted = place[target[end]], products or 0
        shortest = {(end, 0): (1, end + 1)}
        for i in range(end - 1, begin - 1, -1):
            ways_on = [i + 1]
            ahead = place.get(target[i], 0)
            if i < ahead <= end and not any(needed.search(text) for _, text in code[i + 1 : ahead]):
                ways_on = [ahead] if code[i][1].startswith("BRA") else [i + 1, ahead]
            for left in range(wanted + 1):
                behind = max(0, left - counted[i])
                ways = [(shortest[to, behind][0] + 1, to) for to in ways_on if (to, behind) in shortest]
                if ways:
                    shortest[i, left] = min(ways)
        if (begin, wanted) not in shortest:
            continue
        body, i, left = [], begin, wanted
        while i <= end:
            body.append(code[i][1])
            i, left = shortest[i, left][1], max(0, left - counted[i])
        if any(map(PRODUCT.match, body)) and any("LDGSTS" in text for text in body):
            loops.append(body)
    return min(loops, key=len, default=[])


ROUNDS = 6


def clocks(body, warps):
    """Of a round of all warps; and what a scheduler waits for, (instruction, what): clocks."""
    there = [defaultdict(float) for _ in range(4 * warps)]  # of each warp's registers
    at, next_issue = [0] * (4 * warps), [0.0] * (4 * warps)
    free, now, last, waits, end = defaultdict(float), [0.0] * 4, [0] * 4, Counter(), 0.0
    while True:
        best = None
        for s in range(4):
            for k in range(warps):
                w = s * warps + (last[s] + k) % warps  # that which issued last first
                if at[w] == ROUNDS * len(body):
                    continue
                one = body[at[w] % len(body)]
                when, why = max((next_issue[w], ""), (now[s], ""), *((there[w][r], r) for r in one.reads | one.writes))
                unit = one.unit if one.unit == "shared" else (s, one.unit)
                when, why = max((when, why), (free[unit] - (QUEUE if one.unit == "shared" else 0), one.unit))
                if best is None or when < best[0]:
                    best = (when, why, s, w, one, unit)
        if best is None:
            return end / ROUNDS, waits
        when, why, s, w, one, unit = best
        waits[(at[w] % len(body), why)] += when - now[s]
        start = max(free[unit], when)
        free[unit] = start + one.clocks
        for register in one.writes:
            there[w][register] = start + one.latency + (one.clocks if one.unit == "shared" else 0)
        now[s], next_issue[w], last[s], at[w], end = when + 1, when + 1, w - s * warps, at[w] + 1, max(end, when)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernel", help="a regular expression, of its mangled name")
    parser.add_argument("--warps", type=int, default=2, metavar="N", help="of a scheduler [2]")
    parser.add_argument("--products", type=int, metavar="N", help="of a round, where kernels have ways with more or fewer [all there are]")
    parser.add_argument("--most", type=float, metavar="CLOCKS", help="exit code 1 where a matrix product takes more")
    options = parser.parse_args()
    found = [code for name, code in functions(sys.stdin) if re.search(options.kernel, name)]
    body = [Instruction(text) for text in loop_of(found[0], options.products)] if found else []
    if not body:
        sys.exit(f"sass_clocks: no loop of matrix products in {options.kernel}")
    products = sum(PRODUCT.match(one.text) is not None for one in body)
    total, waits = clocks(body, options.warps)
    each = total / products / options.warps
    print(f"{len(body)} instructions, {products} matrix products; "
          f"{total:.0f} clocks a round of {options.warps} warps, {each:.2f} a product")
    units = Counter()
    for one in body:
        units[one.unit] += one.clocks * options.warps * (4 if one.unit == "shared" else 1) / total
    print("busy: " + ", ".join(f"{unit} {100 * share:.0f} %" for unit, share in units.most_common()))
    for (i, why), spent in waits.most_common(5):
        print(f"  {spent / 4 / ROUNDS:5.1f} clocks for {why or 'its turn'}: {body[i].text}")
    if options.most and each > options.most:
        sys.exit(f"sass_clocks: {each:.2f} clocks a matrix product (expected at most {options.most})")


if __name__ == "__main__":
    main()
