#!/usr/bin/env python3
"""What the machine code of kernels must keep to, read from `cuobjdump -sass -arch sm_90` of the objects that cuda_build.sh names on stdin.

Products of up to four tokens: weights must be on their way before a kernel waits for the one before it (ptxas has moved such loads), and
the loop over them may not take more instructions for 16 bytes of a lane than it did when the limits were noted. Tiles of many tokens: their
loop may not take more instructions for a matrix product, nor the whole kernel more than a cache of instructions should have to bring.
Exit code 1 where a kernel does not.
"""

import re
import sys

FIRST_LOADS = {"1": 8, "2": 8, "4": 8, "8": 4}  # by the tokens that a block may have
# Instructions of the loop for 16 bytes of a lane, by GridTraits (kernels/device/dispatch.cuh: codes, codes of a lane, groups of a window,
# form of scales, minimums). What finds the next rows counts as a part of the loop, both ways: by an addition, once for a tile, and anew
# at the end of a part. 2026-11-27, CUDA 13.0, in brackets.
LIMITS = {
    "fp8, scales of blocks": (("4", "16", "1", "0", "0"), 60.2),  # (58.4)
    "int8, a scale a row": (("3", "16", "0", "0", "0"), 48.0),  # (46.6)
    "bf16": (("2", "8", "0", "0", "0"), 29.2),  # (28.1; 28.4 of four tokens)
    "groups of 64 with minimums": (("3", "16", "1", "0", "1"), 79.5),  # (77.2)
    "groups of 32, F16": (("3", "8", "1", "1", "0"), 91),  # (87.8; 88.8 of four tokens)
    "groups of 32 with minimums": (("3", "8", "1", "0", "1"), 103),  # (100.0)
    "groups of 32 with minimums, two levels": (("3", "8", "1", "2", "1"), 130),  # (126.1)
    "groups of 16": (("3", "8", "2", "0", "0"), 140.2),  # (136.1)
    "groups of 16, two levels": (("3", "8", "2", "2", "0"), 122.7),  # (119.1)
    "groups of 16 with minimums, two levels": (("3", "8", "2", "2", "1"), 166),  # (161.0)
}
FOUR_TOKENS = {"fp8, scales of blocks", "int8, a scale a row", "bf16", "groups of 32, F16"}  # that have a kernel for three and four
# Of tiles: instructions of the loop for a matrix product of 16 rows (MMA), what is skipped in most rounds too, and of the whole kernel.
TILES = {
    "attention, heads of 64": (r"attend_tiles_kernelILNS0_9CacheKindE0ELi64E", 13.0, 4260),  # (12.6, 4128)
    "attention, heads of 128": (r"attend_tiles_kernelILNS0_9CacheKindE0ELi128E", 9.7, 4370),  # (9.4, 4240)
    "attention, heads of 256": (r"attend_tiles_kernelILNS0_9CacheKindE0ELi256E", 7.7, 4750),  # (7.4, 4608)
    "attention of one token, F16": (r"13attend_kernelILNS0_9CacheKindE0ELi8ELi1E", 10.7, 4320),  # (10.3, 4192)
    "the same, heads of 129 to 256": (r"13attend_kernelILNS0_9CacheKindE0ELi8ELi2E", 6.0, 5540),  # (5.8, 5376)
    # Those of tokens have loops for tiles that are full, which is counted, and for others. That of many texts counts what ends a slice,
    # once in some steps, without which it has 4.9.
    "experts, fp8, scales of blocks": (r"grouped_kernel.*CodesE4ELi16ELi1E", 4.75, 2370),  # (4.6, 2304)
    "many tokens, fp8, scales of blocks": (r"4cuda11gemm_kernel.*CodesE4ELi16ELi1E", 5.05, 2080),  # (4.9, 2024)
    "the next tokens of many texts, the same": (r"split_gemm_kernel.*CodesE4ELi16ELi1E", 11.5, 4000),  # (11.2; 3888)
}
# Products of one token by chosen experts, FP8 with scales of blocks: the same loop, and all of the kernel. 2026-11-27, in brackets.
EXPERTS = (re.compile(r"chosen_kernel.*CodesE4ELi16ELi1E"), 60.3, 2380)  # (58.6, 2368)
NAME = re.compile(r"gemv_kernel.*CodesE(\d)ELi(\d+)ELi(\d)EL[^L]*ScaleFormE(\d)ELb(\d)EEELi(\d)E")


def functions(lines):
    """(name, [(address, instruction, the upper 64 bits of its encoding)]) of each."""
    name, code = None, []
    for line in lines:
        if match := re.search(r"Function : (\S+)", line):
            if name:
                yield name, code
            name, code = match[1], []
        elif match := re.search(r"/\*([0-9a-f]{4,5})\*/\s+(.*?);", line):
            code.append((int(match[1], 16), match[2], 0))
        elif code and (match := re.match(r"\s+/\* (0x[0-9a-f]{16}) \*/", line)):
            code[-1] = (*code[-1][:2], int(match[1], 16))
    if name:
        yield name, code


def branch_target(text):
    """The address that an instruction may go to, or None."""
    match = re.search(r"BRA (?:!?U?P\d+, )?0x([0-9a-f]+)", text)
    return int(match[1], 16) if match else None


def copied_bytes(text):
    """Bytes of codes that a lane asks for."""
    match = re.search(r"LDGSTS\S*\.(64|128)\b", text)
    return int(match[1]) // 8 if match else 0


def first_loads(code, wait=0):
    """Copies of weights before the kernel waits, by default for the first time; the first two are of the norm's."""
    waits = [i for i, (_, text, _) in enumerate(code) if "ACQBULK" in text]
    return sum(copied_bytes(text) > 0 for _, text, _ in code[: waits[wait]]) - 2


def loop_cost(code):
    """Instructions for 16 bytes of the shortest loop that loads weights and multiplies, and finds the next rows in between."""
    index = {address: i for i, (address, *_) in enumerate(code)}
    costs = []
    for i, (_, text, _) in enumerate(code):
        begin = index.get(branch_target(text), i)
        body = [t for _, t, _ in code[begin : i + 1]]
        size = sum(copied_bytes(t) for t in body)
        if size and any("MMA" in t for t in body):
            costs.append(16 * len(body) / size)
    return min(costs, default=float("inf"))


def tile_cost(code):
    """Instructions for a matrix product of the loop that copies to shared memory and multiplies, the one with the fewest of several."""
    index = {address: i for i, (address, *_) in enumerate(code)}
    costs = []
    for i, (address, text, _) in enumerate(code):
        target = branch_target(text)
        if target is not None and target < address:
            body = [t for _, t, _ in code[index[target] : i + 1]]
            products = sum("MMA" in t for t in body)
            if products and any("LDGSTS" in t for t in body):
                costs.append(len(body) / products)
    return min(costs, default=float("inf"))


def main():
    limits = {kind: (name, limit) for name, (kind, limit) in LIMITS.items()}
    bad, seen, tiles, experts = [], set(), set(), 0
    for name, code in functions(sys.stdin):
        for kind, (pattern, most, whole) in TILES.items():
            if not re.search(pattern, name):
                continue
            tiles.add(kind)
            if (cost := tile_cost(code)) > most:
                bad.append(f"{kind}: {cost:.1f} instructions for a matrix product (expected at most {most})")
            if len(code) > whole:
                bad.append(f"{kind}: {len(code)} instructions (expected at most {whole})")
        if EXPERTS[0].search(name):
            experts += 1
            # The first product of an expert waits before it knows the expert, the second one behind that.
            if (count := first_loads(code, -1)) < FIRST_LOADS["1"]:
                bad.append(f"{name}: {count} loads of weights before it waits (expected at least {FIRST_LOADS['1']})")
            if (cost := loop_cost(code)) > EXPERTS[1]:
                bad.append(f"{name}: {cost:.1f} instructions for 16 bytes of weights (expected at most {EXPERTS[1]})")
            if len(code) > EXPERTS[2]:
                bad.append(f"{name}: {len(code)} instructions (expected at most {EXPERTS[2]})")
        if not (match := NAME.search(name)):
            continue
        *grid, tokens = match.groups()
        if (count := first_loads(code)) < FIRST_LOADS[tokens]:
            bad.append(f"{name}: {count} loads of weights before it waits (expected at least {FIRST_LOADS[tokens]})")
        if tokens in ("2", "4") and tuple(grid) in limits:
            kind, limit = limits[tuple(grid)]
            seen.add((kind, tokens))
            if (cost := loop_cost(code)) > limit:
                bad.append(f"{kind}, {name}: {cost:.1f} instructions for 16 bytes of weights (expected at most {limit})")
    expected = {(name, "2") for name in LIMITS} | {(name, "4") for name in FOUR_TOKENS}
    bad += [f"no kernel for {name}, up to {tokens} tokens" for name, tokens in sorted(expected - seen)]
    bad += [f"no kernel for {name}" for name in TILES if name not in tiles]
    bad += ["no kernel for chosen experts"] * (experts == 0)
    print("\n".join(f"sass: {line}" for line in bad) or f"sass: good, {len(seen) + len(tiles) + experts} loops counted")
    sys.exit(bool(bad))


if __name__ == "__main__":
    main()
