#!/usr/bin/env python3
"""How many clocks the loop of a kernel's matrix products takes on a multiprocessor of Hopper, by its machine code.

    cuobjdump -sass -arch sm_90 build/cuda/attend.o | bench/sass_clocks.py 'attend_tiles_kernelILNS0_9CacheKindE0ELi128E' --blocks 2

A warp issues its instructions in order: each the clocks behind the one before that ptxas gave it, and when the barriers it names are free,
which loads set (both are in the upper bits of an instruction); when its unit is free; and, behind a barrier of the block, when all warps of
the block are there. A scheduler issues one a clock; its four share what moves shared memory. Latencies are estimates. Caches of
instructions, conflicts of banks and copies that come late are not looked at: an H200 took 1.4 to 1.5 times as long for three kernels
(bench/README.md). The shortest way through the loop is taken that leaves out no copy, product or barrier, or with --products no copy or
barrier: without masks, caps and other rare cases. Of a kernel with several loops, as those that have one for whole tiles, the fastest.
"""

import argparse
import re
import signal
import sys
from collections import Counter, defaultdict
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests/build"))
from sass import branch_target, functions  # noqa: E402

# Of mma.sync with products of 16 x 8 x 16 in F16: 63 % of the tensor cores' peak (published: arXiv 2402.13499).
MMA_CLOCKS = 6.4
# By name: an instruction's unit, the clocks that it keeps it, and those until its result is there, where it sets a barrier: of others ptxas
# counted them. Units of 32 lanes take one clock, of 16 two and so on (CUDA C++ Programming Guide, throughput of arithmetic instructions,
# 9.0); latencies estimated after the same paper.
UNITS = {
    "HMMA": ("tensor", MMA_CLOCKS, 33), "IMMA": ("tensor", MMA_CLOCKS, 33),
    "LDS": ("shared", 1, 24), "LDSM": ("shared", 1, 24), "STS": ("shared", 1, 4), "LDGSTS": ("shared", 1, 4), "LDG": ("shared", 1, 280),
    "LD": ("shared", 1, 280), "STG": ("shared", 1, 4), "LDL": ("shared", 1, 30), "STL": ("shared", 1, 4), "SHFL": ("shared", 1, 24),
    "MUFU": ("special", 8, 24), "F2F": ("special", 8, 24), "I2F": ("special", 8, 24), "F2I": ("special", 8, 24),
    "FFMA": ("fma", 1, 4), "FMUL": ("fma", 1, 4), "FADD": ("fma", 1, 4), "IMAD": ("fma", 2, 4),
    "LDC": ("", 0, 45), "ULDC": ("", 0, 45), "S2R": ("", 0, 35), "S2UR": ("", 0, 35),
    **{name: ("", 0, 4) for name in ("BAR", "DEPBAR", "LDGDEPBAR", "WARPSYNC", "BRA", "BSSY", "BSYNC", "NOP", "CS2R")},
}  # fmt: skip
OTHERS = ("alu", 2, 4)
QUEUE = 40  # clocks of requests that wait for shared memory before a scheduler does
BARRIER = 25  # from when the last warp meets the others
# Of a copy of 16 bytes by each lane: to look up the lines that it reads, four or, of codes in rows of 64 bytes, eight, which are those that
# bring 256 bytes into L2; and to write them.
LOOK_UP, LOOK_UP_ROWS, WRITE = 4, 8, 4
PRODUCT = re.compile(r"[HI]MMA\.")
NEEDED = re.compile(r"[HI]MMA\.|LDSM|LDGSTS|BAR\.")
NEEDED_BESIDE = re.compile(r"LDGSTS|BAR\.")  # where the number of products is given
ROUNDS, SKEW = 8, 1000  # SKEW: clocks that a second block begins later


class Instruction:
    def __init__(self, text, encoding):
        self.text = re.sub(r"^@!?U?P\w+\s+", "", text)
        self.name, *rest = self.text.split()[0].split(".")
        control = encoding >> 41
        self.stall, self.sets, self.sets_read, waits = control & 15, control >> 5 & 7, control >> 8 & 7, control >> 11 & 63
        self.waits = [i for i in range(6) if waits >> i & 1]
        self.unit, self.clocks, self.latency = UNITS.get(self.name, OTHERS)
        if text.startswith("@!PT"):
            self.clocks = 0
        elif self.name == "LDGSTS":
            self.clocks = (LOOK_UP_ROWS if "LTC256B" in rest else LOOK_UP) + WRITE
        elif self.unit == "shared" and self.name not in ("SHFL", "LDG", "LD"):
            size = rest[-1] if self.name == "LDSM" else str(max((int(r) // 32 for r in rest if r in ("64", "128")), default=1))
            self.clocks = int(size) if size.isdigit() else 1  # 128 bytes a clock, of 32 lanes with so many words each


def loops_of(code, products=None):
    """Loops that copy to shared memory and multiply, of each the shortest way that leaves out no copy, product or barrier, or with
    `products` the shortest one with so many products and all copies and barriers."""
    place = {address: i for i, (address, *_) in enumerate(code)}
    target = [branch_target(text) for _, text, _ in code]
    needed = NEEDED if products is None else NEEDED_BESIDE
    counted = [products is not None and PRODUCT.search(text) is not None for _, text, _ in code]
    for end, (address, *_) in enumerate(code):
        if target[end] is None or target[end] > address or target[end] not in place:
            continue
        # From the end to the beginning, by the products still to come: the number of instructions from there on, and the next of them.
        begin, wanted = place[target[end]], products or 0
        shortest = {(end, 0): (1, end + 1)}
        for i in range(end - 1, begin - 1, -1):
            ways_on = [i + 1]
            ahead = place.get(target[i], 0)
            if i < ahead <= end and not any(needed.search(text) for _, text, _ in code[i + 1 : ahead]):
                ways_on = [ahead] if code[i][1].startswith("BRA 0x") else [i + 1, ahead]
            elif code[i][1].startswith("BRA 0x"):
                ways_on = []
            for left in range(wanted + 1):
                behind = max(0, left - counted[i])
                ways = [(shortest[to, behind][0] + 1, to) for to in ways_on if (to, behind) in shortest]
                if ways:
                    shortest[i, left] = min(ways)
        if (begin, wanted) not in shortest:
            continue
        body, i, left = [], begin, wanted
        while i <= end:
            body.append(Instruction(*code[i][1:]))
            i, left = shortest[i, left][1], max(0, left - counted[i])
        names = {one.name for one in body}
        if names & {"HMMA", "IMMA"} and "LDGSTS" in names:
            yield body


class Warp:
    def __init__(self, number, block):
        self.scheduler, self.block = number % 4, block
        self.at, self.meets = 0, 0  # instructions issued; barriers of the block that it was at
        self.next, self.barrier = float(block * SKEW), [0.0] * 6  # when it may issue its next one, and the six are free


def clocks(body, blocks, warps):
    """Of a round of the first block's warps while the others go on, the mean of the second half of ROUNDS; and what they wait for,
    (instruction, what): clocks of all."""
    all_warps = [Warp(number, number // warps) for number in range(blocks * warps)]
    free, scheduler, last = defaultdict(float), [0.0] * 4, [None] * 4
    met, waits, ends, running = defaultdict(list), Counter(), [0.0] * (ROUNDS + 1), warps  # running: of the first block
    while True:
        best = None
        for number, warp in enumerate(all_warps):
            if warp.block == 0 and warp.at == ROUNDS * len(body):
                continue
            one, when, why = body[warp.at % len(body)], warp.next, ""
            if warp.at and body[(warp.at - 1) % len(body)].name == "BAR":
                others = met[warp.block, warp.meets]
                if len(others) < warps:
                    continue
                when, why = max((when, why), (max(others) + BARRIER, "the others"))
            unit = one.unit if one.unit == "shared" else (warp.scheduler, one.unit)
            loads = max((warp.barrier[i] for i in one.waits), default=0.0)
            full = free[unit] - (QUEUE if one.unit == "shared" else 0) if one.unit else 0.0
            for then, what in ((loads, "a load"), (scheduler[warp.scheduler], "its turn"), (full, one.unit)):
                when, why = (then, what) if then > when else (when, why)
            order = (when, last[warp.scheduler] is not warp, number)  # that which issued last first
            if best is None or order < best[0]:
                best = (order, why, warp, one, unit)
        if running == 0:
            half = ROUNDS // 2
            return (ends[ROUNDS] - ends[half]) / (ROUNDS - half), waits
        (when, *_), why, warp, one, unit = best
        if warp.block == 0:
            waits[warp.at % len(body), why] += when - warp.next
        start = max(free[unit], when) if one.unit else when
        if one.unit:
            free[unit] = start + one.clocks
        for barrier, then in ((one.sets, start + one.clocks + one.latency), (one.sets_read, start + one.clocks)):
            if barrier < 6:
                warp.barrier[barrier] = max(warp.barrier[barrier], then)
        if one.name == "BAR":
            warp.meets += 1
            met[warp.block, warp.meets].append(when)
        scheduler[warp.scheduler], last[warp.scheduler] = when + 1, warp
        warp.next, warp.at = when + max(one.stall, 1), warp.at + 1
        if warp.block == 0 and warp.at % len(body) == 0:
            ends[warp.at // len(body)] = max(ends[warp.at // len(body)], warp.next)
            running -= warp.at == ROUNDS * len(body)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kernel", help="a regular expression, of its mangled name")
    parser.add_argument("--blocks", type=int, default=1, choices=(1, 2, 4, 8), help="of a multiprocessor, eight warps in all [1]")
    parser.add_argument("--products", type=int, metavar="N", help="of a round, where kernels have ways with more or fewer [all there are]")
    parser.add_argument("--most", type=float, metavar="CLOCKS", help="exit code 1 where a matrix product takes more")
    options = parser.parse_args()
    warps = 8 // options.blocks
    found = [code for name, code in functions(sys.stdin) if re.search(options.kernel, name)]
    results = []
    for body in loops_of(found[0], options.products) if found else ():
        products = sum(one.name in ("HMMA", "IMMA") for one in body)
        if options.products not in (None, products):
            continue
        total, waits = clocks(body, options.blocks, warps)
        each = total / products / (options.blocks * warps / 4)  # of a scheduler
        results.append((each, total, products, body, waits))
    if not results:
        sys.exit(f"sass_clocks: no loop of matrix products in {options.kernel}")
    each, total, products, body, waits = min(results, key=lambda result: result[0])
    all_warps = options.blocks * warps
    print(f"{len(body)} instructions, {products} matrix products; "
          f"{total:.0f} clocks a round of {all_warps} warps, {each:.2f} a product of a scheduler")
    units = Counter()
    for one in body:
        units[one.unit] += one.clocks * all_warps / (1 if one.unit == "shared" else 4) / total
    print("busy: " + ", ".join(f"{unit} {100 * share:.0f} %" for unit, share in units.most_common() if unit))
    for (i, why), spent in Counter({key: spent for key, spent in waits.items() if key[1]}).most_common(8):
        print(f"  {spent / warps / ROUNDS:5.1f} clocks for {why}: {body[i].text}")
    if options.most and each > options.most:
        sys.exit(f"sass_clocks: {each:.2f} clocks a matrix product (expected at most {options.most})")


if __name__ == "__main__":
    signal.signal(signal.SIGPIPE, signal.SIG_DFL)  # `| head` ends it quietly
    main()
