#!/usr/bin/env python3
"""Checks that an 8-bit checkpoint folder has what servers want of it, from its files alone.

  tools/check_published.py FOLDER

Each rule names where it comes from. Prints what is wrong, one line each, and exits with 1; else "good" with counts.
"""
import json
import re
import struct
import sys
from pathlib import Path

# Layers that vLLM makes one of: packed_modules_mapping of its models; deepseek_v2.py, fused_qkv_a_proj.
FUSED = (("q_proj", "k_proj", "v_proj"), ("gate_proj", "up_proj"), ("in_proj_qkv", "in_proj_z"), ("w1", "w3"),
         ("q_a_proj", "kv_a_proj_with_mqa"))
FLOATS = ("F32", "F16", "BF16")


def read_header(path):
    with open(path, "rb") as file:
        (length,) = struct.unpack("<Q", file.read(8))
        header = json.loads(file.read(length))
    return header.pop("__metadata__", None), header, path.stat().st_size - 8 - length


class Checker:
    def __init__(self, folder):
        self.folder = Path(folder)
        self.problems = []
        self.config = json.loads((self.folder / "config.json").read_text())
        self.declared = self.config.get("quantization_config") or {}
        self.tensors, self.file_of = {}, {}
        self.quantized = {}  # module: (rows, cols)

    def want(self, holds, problem):
        if not holds:
            self.problems.append(problem)

    def read_files(self):
        files = sorted(self.folder.glob("*.safetensors"))
        self.want(files, "no *.safetensors")
        total = 0
        for path in files:
            metadata, header, data = read_header(path)
            # transformers, modeling_utils.py: load_state_dict() wants metadata.format to be "pt".
            self.want((metadata or {}).get("format") == "pt", f"{path.name}: __metadata__ has no format \"pt\"")
            bits = {"F32": 32, "I64": 64, "F64": 64, "I32": 32}
            for name, entry in header.items():
                begin, _ = entry["data_offsets"]
                size = bits.get(entry["dtype"], 16 if entry["dtype"] in ("F16", "BF16") else 8) // 8
                # safetensors, torch views: a tensor lies at a multiple of its element's size.
                self.want(begin % size == 0, f"{name}: its data is not aligned to {size} bytes")
                self.want(name not in self.tensors, f"{name}: in two files")
                self.tensors[name], self.file_of[name] = entry, path.name
            total += data
        index = self.folder / "model.safetensors.index.json"
        # transformers and vLLM read the files that the index names, and only those.
        self.want(index.exists() == (len(files) > 1), "an index is there for several files, and only then")
        if index.exists():
            index = json.loads(index.read_text())
            self.want(index["weight_map"] == self.file_of, "the index does not name every tensor in its file")
            self.want(index["metadata"]["total_size"] == total, "the index's total_size is not that of the tensors")
        for leftover in [*self.folder.glob("*.partial"), *self.folder.glob("INCOMPLETE*")]:
            self.want(False, f"{leftover.name}: left over")

    def find_quantized(self):
        for name, entry in self.tensors.items():
            if name.endswith(".weight") and entry["dtype"] in ("F8_E4M3", "I8"):
                self.quantized[name[: -len(".weight")]] = tuple(entry["shape"])
        self.want(self.quantized, "no 8-bit weight")
        for name, entry in self.tensors.items():
            for suffix in (".weight_scale_inv", ".weight_scale"):
                if name.endswith(suffix):
                    self.want(name[: -len(suffix)] in self.quantized, f"{name}: a scale without an 8-bit weight")

    def ignored(self, names):
        """Whether a module is excluded by a list of names, or of patterns behind "re:"."""
        exact = {name for name in names if not name.startswith("re:")}
        patterns = [re.compile(name[3:]) for name in names if name.startswith("re:")]
        return lambda module: module in exact or any(pattern.match(module) for pattern in patterns)

    def check_excluded(self, names):
        ignored = self.ignored(names)
        for module in self.quantized:
            self.want(not ignored(module), f"{module}: quantized, and declared not to be")
        # vLLM, quantization/utils/quant_utils.py: is_layer_skipped() matches whole names of linear layers.
        for name, entry in self.tensors.items():
            module = name[: -len(".weight")]
            linear = name.endswith("_proj.weight") and len(entry["shape"]) == 2 and entry["dtype"] in FLOATS
            if linear and "visual" not in name:
                self.want(ignored(module), f"{module}: not quantized, and not declared so")
        # vLLM, the same function: the parts of a fused layer must be excluded together.
        for module in self.quantized:
            parent, _, part = module.rpartition(".")
            for parts in FUSED:
                for other in parts if part in parts else ():
                    sibling = f"{parent}.{other}"
                    there = f"{sibling}.weight" in self.tensors
                    self.want(not there or sibling in self.quantized, f"{module}: fused with {sibling}, which is not")

        # vLLM, the same function: the experts of a layer are one module, skipped where an excluded name is in it.
        for parent in {module[: module.index(".experts.") + len(".experts")] for module in self.quantized
                       if ".experts." in module}:
            for name in names:
                self.want(parent not in name, f"{parent}: quantized, and {name} is declared not to be")
            for name in self.tensors:
                module = name[: -len(".weight")]
                if name.endswith(".weight") and name.startswith(f"{parent}."):
                    self.want(module in self.quantized, f"{parent}: quantized, and {module} is not")

    def check_scale(self, module, suffix, dtypes, shape):
        entry = self.tensors.get(f"{module}.{suffix}")
        if entry is None:
            self.problems.append(f"{module}: no {suffix}")
            return
        self.want(entry["dtype"] in dtypes, f"{module}.{suffix}: {entry['dtype']} (expected {' or '.join(dtypes)})")
        self.want(tuple(entry["shape"]) == shape, f"{module}.{suffix}: shape {entry['shape']} (expected {list(shape)})")

    def check_block_fp8(self):
        block = self.declared.get("weight_block_size")
        # vLLM, fp8.py: Fp8Config wants both keys, and blocks only with dynamic activations.
        self.want(self.declared.get("activation_scheme") == "dynamic", "activation_scheme is not dynamic")
        self.want(isinstance(block, list) and len(block) == 2, "weight_block_size is not a pair")
        self.check_excluded(self.declared.get("modules_to_not_convert") or [])
        for module, (rows, cols) in self.quantized.items():
            grid = (-(-rows // block[0]), -(-cols // block[1]))
            self.check_scale(module, "weight_scale_inv", ("BF16", "F32"), grid)
            self.want(self.tensors[f"{module}.weight"]["dtype"] == "F8_E4M3", f"{module}: not E4M3")
            # transformers 5, finegrained_fp8.py: Fp8Dequantize; vLLM, fp8.py: create_weights() for fused layers.
            self.want(rows % block[0] == 0 and cols % block[1] == 0, f"{module}: no whole blocks")

    def check_compressed_tensors(self):
        # compressed-tensors, quant_config.py and quant_args.py; vLLM, compressed_tensors.py reads the same keys.
        (group,) = self.declared["config_groups"].values()
        weights = group["weights"]
        self.want(group["targets"] == ["Linear"], "targets are not [\"Linear\"]")
        self.want(self.declared.get("quantization_status") == "compressed", "quantization_status is not compressed")
        wanted = {("float", "group"): "mxfp8-quantized", ("float", "channel"): "float-quantized",
                  ("float", "tensor"): "float-quantized"}.get((weights["type"], weights["strategy"]), "int-quantized")
        self.want(self.declared.get("format") == wanted, f"format is not {wanted}")
        self.want(weights["num_bits"] == 8 and weights["symmetric"], "weights are not 8 bits, symmetric")
        self.check_excluded(self.declared.get("ignore") or [])
        dtype = "F8_E4M3" if weights["type"] == "float" else "I8"
        for module, (rows, cols) in self.quantized.items():
            self.want(self.tensors[f"{module}.weight"]["dtype"] == dtype, f"{module}: not {dtype}")
            shape = {"tensor": (1,), "channel": (rows, 1)}.get(weights["strategy"])
            if shape is None:
                shape = (rows, cols // weights["group_size"])
            self.check_scale(module, "weight_scale", ("U8",) if weights["strategy"] == "group" else ("BF16", "F32"), shape)

    def run(self):
        self.read_files()
        self.find_quantized()
        method = self.declared.get("quant_method")
        if method == "fp8":
            self.check_block_fp8()
        elif method == "compressed-tensors":
            self.check_compressed_tensors()
        else:
            self.problems.append(f"quant_method {method!r} is none that is known here")
        return self.problems


def main():
    checker = Checker(sys.argv[1])
    problems = checker.run()
    for problem in problems:
        print(problem)
    if not problems:
        print(f"good: {len(checker.quantized)} quantized of {len(checker.tensors)} tensors")
    return 1 if problems else 0


if __name__ == "__main__":
    sys.exit(main())
