#!/usr/bin/env python3
"""A real checkpoint in the formats of many libraries, each written by that library: does qgen read what the library reads?

    tools/producer_oracle.py --qgen build/qgen --model models/SmolLM2-135M-Instruct-BF16 --text FILE [--llama-cpp CHECKOUT] [--only NAME]

MODEL is an unquantized folder. Each library quantizes it in F32, so that scales and what it dequantizes are F32, writes a
checkpoint, and gives back its weights dequantized by its own code (GGUF files: by transformers). transformers computes with
these the perplexity of the text's first tokens; `qgen score` computes it from the checkpoint, with inputs and cache in F32.
Prints one row for each format, and exits with 1 where perplexities differ by more than 1e-4 or a library fails. Libraries that
are not installed are named, and left out: tools/requirements-producers.txt lists them.

CHECKOUT is one of llama.cpp with its tools in build/bin.
"""

import argparse
import contextlib
import functools
import importlib.util
import json
import math
import os
import subprocess
import sys
import tempfile
from pathlib import Path

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("CUDA_VISIBLE_DEVICES", "")
import torch
import transformers

TOLERANCE = 1e-4
TOKENS = 512


def load(folder, **more):
    more = {"dtype": torch.float32, "attn_implementation": "eager", **more}
    return transformers.AutoModelForCausalLM.from_pretrained(folder, **more).eval()


# Each writes a checkpoint and gives a model in F32 with the weights that the library reads from it, or has in memory.


def some_tokens(source):
    """What libraries that want to see inputs are given."""
    return transformers.AutoTokenizer.from_pretrained(source)("Once upon a time", return_tensors="pt").input_ids


def llm_compressor(scheme=None, inputs=False, **weights):
    """A scheme by its name, or its weights, with quantized inputs or without."""

    def write(source, out):
        from compressed_tensors.compressors.nvfp4 import base as nvfp4
        from compressed_tensors.quantization import QuantizationArgs, QuantizationScheme
        from llmcompressor import oneshot
        from llmcompressor.modifiers.quantization import QuantizationModifier

        model = load(source)
        if scheme is None:
            own = {"weights": QuantizationArgs(**weights)}
            if inputs:
                own["input_activations"] = QuantizationArgs(num_bits=8, strategy="token", dynamic=True)
            given = {"config_groups": {"all": QuantizationScheme(targets=["Linear"], **own)}}
        else:
            given = {"targets": "Linear", "scheme": scheme}
        oneshot(model=model, recipe=QuantizationModifier(ignore=["lm_head"], **given))
        model.save_pretrained(out, save_compressed=True)
        # In F32 where it rounds to BF16, and without its quantizers of inputs.
        nvfp4.unpack_fp4_from_uint8 = functools.partial(nvfp4.unpack_fp4_from_uint8, dtype=torch.float32)
        read = load(out, quantization_config=transformers.CompressedTensorsConfig(run_compressed=False))
        return with_dequantized(source, read)

    return write


def with_dequantized(source, quantized):
    """A plain model with a quantized one's parameters."""
    model = load(source)
    stored = dict(quantized.named_parameters()) | dict(quantized.named_buffers())
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            value = stored[name]
            parameter.copy_(value.dequantize() if hasattr(value, "dequantize") else value)
    return model


def with_weights(source, weights):
    """A plain model with the weights of some modules, by their names."""
    plain = load(source)
    with torch.no_grad():
        for name, weight in weights.items():
            plain.get_submodule(name).weight.copy_(weight)
    return plain


def torchao(kind, dtype=torch.float32, **given):
    def write(source, out):
        from torchao import quantization
        from torchao.prototype import mx_formats
        from torchao.prototype.mx_formats import inference_workflow
        from torchao.quantization.quantize_.workflows.int4 import int4_tensor

        inference_workflow.is_sm_at_least_100 = lambda: True  # weights are rounded on the CPU, and no product is computed
        if kind == "Int4WeightOnlyConfig" and int4_tensor.pack_int4 is None:  # MSLK has FBGEMM's functions, but no package for CPUs
            from fbgemm_gpu.experimental.gen_ai import quantize

            int4_tensor.pack_int4, int4_tensor.int4_row_quantize_zp = quantize.pack_int4, quantize.int4_row_quantize_zp
        int4_tensor.Int4Tensor.dequantize = dequantize_int4
        config = getattr(quantization if hasattr(quantization, kind) else mx_formats, kind)(**given)
        model = load(source, dtype=dtype, quantization_config=transformers.TorchAoConfig(config))
        model.save_pretrained(out)
        return with_dequantized(source, model)

    return write


def torchao_mx(codes):
    """MXTensor rounds BF16 only, and what it dequantizes is exact in it."""
    return torchao("MXDynamicActivationMXWeightConfig", torch.bfloat16, activation_dtype=codes, weight_dtype=codes)


def dequantize_int4(tensor):
    """torchao's Int4Tensor, which has no function for it: code * scale + zero_point, in groups of columns, codes of two's complement."""
    low, high = (tensor.qdata << 4) >> 4, tensor.qdata >> 4
    codes = torch.stack([low, high], dim=-1).flatten(-2).float()
    group = tensor.block_size[-1]
    scale, zero = (x.t().float().repeat_interleave(group, dim=1)[:, : codes.shape[1]] for x in (tensor.scale, tensor.zero_point))
    return codes * scale + zero


def quanto(kind):
    def write(source, out):
        import optimum.quanto as q

        model = load(source)
        quantized = q.QuantizedModelForCausalLM.quantize(model, weights=getattr(q, kind), exclude="lm_head")
        quantized.save_pretrained(out)
        modules = {n: x for n, x in model.named_modules() if isinstance(x, q.QLinear)}
        return with_weights(source, {n: x.weight.dequantize() for n, x in modules.items()})

    return write


def fbgemm(source, out):
    """Rows that FBGEMM rounds, by the names and with the entries that transformers' fbgemm_fp8 has, which wants a GPU."""
    import safetensors.torch
    from fbgemm_gpu.experimental.gemm.triton_gemm.fp8_gemm import quantize_fp8_row

    model = load(source)
    tensors, weights = dict(model.state_dict()), {}
    tensors.pop("lm_head.weight", None)
    for name, module in model.named_modules():
        if isinstance(module, torch.nn.Linear) and name != "lm_head":
            codes, scales = quantize_fp8_row(module.weight.detach())
            tensors |= {f"{name}.weight": codes, f"{name}.weight_scale": scales[:, None].float()}
            weights[name] = codes.float() * scales[:, None]
    model.config.quantization_config = {"quant_method": "fbgemm_fp8", "activation_scale_ub": 1200.0, "modules_to_not_convert": ["lm_head"]}
    model.config.save_pretrained(out)
    safetensors.torch.save_file({n: t.contiguous() for n, t in tensors.items()}, out / "model.safetensors")
    return with_weights(source, weights)


def bitsandbytes(source, out):
    import bitsandbytes as bnb

    config = transformers.BitsAndBytesConfig(load_in_8bit=True)
    model = load(source, dtype=torch.bfloat16, quantization_config=config, device_map="cpu")
    model.save_pretrained(out)
    plain = load(source)
    with torch.no_grad():
        for name, module in model.named_modules():
            if isinstance(module, bnb.nn.Linear8bitLt):
                weight = module.weight
                plain.get_submodule(name).weight.copy_(bnb.functional.int8_vectorwise_dequant(weight.CB, weight.SCB))
    return plain


def mlx(bits, group, mode="affine"):
    def write(source, out):
        import mlx.core as mx
        import mlx_lm
        import numpy as np

        out.rmdir()
        mlx_lm.convert(str(source), str(out), quantize=True, q_bits=bits, q_group_size=group, q_mode=mode, dtype="float32")
        stored = {}
        for path in out.glob("*.safetensors"):
            stored |= mx.load(str(path))
        plain = load(source)
        with torch.no_grad():
            for name, parameter in plain.named_parameters():
                value = stored[name]
                module = name.removesuffix(".weight")
                if module + ".scales" in stored:
                    grids = (stored[module + ".scales"], stored.get(module + ".biases"))
                    value = mx.dequantize(value, *grids, group_size=group, bits=bits, mode=mode)
                parameter.copy_(torch.from_numpy(np.array(value.astype(mx.float32))))
        return plain

    return write


def auto_round(bits, symmetric, layout="auto_round"):
    def write(source, out):
        from auto_round import AutoRound
        from auto_round.export.export_to_awq.utils import dequantize_gemm

        tokenizer = transformers.AutoTokenizer.from_pretrained(source)
        given = {"bits": bits, "group_size": 64, "sym": symmetric, "iters": 0, "disable_opt_rtn": True, "device_map": "cpu"}
        quantizer = AutoRound(load(source), tokenizer, **given)
        quantizer.quantize()
        model = quantizer.save_quantized(str(out), format=layout, inplace=True)
        weights = {}
        for name, module in model.named_modules():
            if not hasattr(module, "qweight"):
                continue
            module.scales = module.scales.float()  # stored in F16 alone, and it multiplies in their type
            module._buffers.pop("g_idx", None)  # in natural order; its own reader leaves it out as well
            if "awq" in layout:
                weight = dequantize_gemm(module.qweight, module.qzeros, module.scales, bits, module.group_size)
            else:
                weight = module(torch.eye(module.infeatures))
            weights[name] = weight.T
        return with_weights(source, weights)

    return write


def hqq(bits, axis=1, **given):
    def write(source, out):
        from hqq.core.quantize import HQQLinear
        from hqq.models.hf.base import AutoHQQHFModel

        # transformers 5 does not make such models; 4 saves what it makes with the same tensors and settings.
        config = transformers.HqqConfig(nbits=bits, group_size=64, axis=axis, **given)
        model = load(source)
        AutoHQQHFModel.quantize_model(model, config.quant_config, compute_dtype=torch.float32, device="cpu")
        model.config.quantization_config = config.to_dict()
        model.save_pretrained(out)
        modules = {n: x for n, x in model.named_modules() if isinstance(x, HQQLinear)}
        return with_weights(source, {n: x.dequantize() for n, x in modules.items()})

    return write


def quark(spec, **given):
    def write(source, out):
        from quark.torch import ModelQuantizer, export_safetensors
        from quark.torch.quantization import QConfig, QLayerConfig
        from quark.torch import quantization as specs

        weight = getattr(specs, spec)(**given, is_dynamic=False).to_quantization_spec()
        quantizer = ModelQuantizer(QConfig(global_quant_config=QLayerConfig(weight=weight), exclude=["lm_head"]))
        batch = some_tokens(source)
        model = quantizer.freeze(quantizer.quantize_model(load(source), [batch]))
        # Frozen layers hold their weights dequantized.
        weights = {n: x.weight.detach().clone() for n, x in model.named_modules() if type(x).__name__ == "QuantLinear"}
        export_safetensors(model, str(out))
        return with_weights(source, weights)

    return write


def modelopt(config, kind="FP8QTensor"):
    """What an export holds, dequantized: its layers of one input share scales, and its ties may round the other way than those of the
    quantizers in memory."""

    def write(source, out):
        import modelopt.torch.quantization as mtq
        from modelopt.torch.export import export_hf_checkpoint
        from modelopt.torch.quantization import qtensor
        from safetensors.torch import load_file

        batch = some_tokens(source)
        model = mtq.quantize(load(source), getattr(mtq, config), lambda m: m(batch))
        with torch.inference_mode():
            export_hf_checkpoint(model, dtype=torch.float32, export_dir=str(out))
        stored = {}
        for path in out.glob("*.safetensors"):
            stored |= load_file(path)
        plain = load(source)
        with torch.no_grad():
            for name, parameter in plain.named_parameters():
                value, scale = stored[name], stored.get(name + "_scale")
                if scale is not None:
                    blocks = {-1: 16 if kind == "NVFP4QTensor" else 32}
                    if scale.dim() < 2:
                        scale, blocks = scale.reshape(-1, 1), {}
                    elif scale.dim() == 4:
                        scale, blocks = scale[:, 0, :, 0], {-1: 128, -2: 128}
                    scales = {"scale": scale, "double_scale": stored.get(name + "_scale_2"), "block_sizes": blocks}
                    value = getattr(qtensor, kind)(parameter.shape, torch.float32, value).dequantize(**scales)
                # Inputs are multiplied by these.
                parameter.copy_(value * stored.get(name.removesuffix("weight") + "pre_quant_scale", 1))
        return plain

    return write


def gptqmodel(bits, ordered=False):
    def write(source, out):
        os.environ.setdefault("GPTQMODEL_CPU_WORKERS", "4")  # its default of a small machine is too few for itself
        from gptqmodel import BACKEND, GPTQModel, QuantizeConfig

        config = QuantizeConfig(bits=bits, group_size=64, sym=bits == 8, desc_act=ordered)
        model = GPTQModel.load(str(source), config, device="cpu")
        model.quantize([" ".join(f"{a} times {b} is {a * b}." for b in range(1, 40)) for a in range(1, 9)], batch_size=1)
        model.save(str(out))
        # Scales are stored in F16 alone, and it multiplies in their type.
        read = GPTQModel.load(str(out), backend=BACKEND.TORCH, device="cpu", dtype=torch.float16).model
        modules = {n: x for n, x in read.named_modules() if hasattr(x, "dequantize_weight")}
        for module in modules.values():
            module.scales = module.scales.float()
        return with_weights(source, {n: x.dequantize_weight().T.float() for n, x in modules.items()})

    return write


def msmodelslim(**given):
    def write(source, out):
        from msmodelslim.pytorch.llm_ptq.llm_ptq_tools import Calibrator, QuantConfig

        model = load(source)
        model.lm_head.weight = torch.nn.Parameter(model.lm_head.weight.detach().clone())  # it writes no shared tensors
        model.config.tie_word_embeddings = False
        model.config.save_pretrained(out)
        transformers.AutoTokenizer.from_pretrained(source).save_pretrained(out)
        config = QuantConfig(dev_type="cpu", disable_names=["lm_head"], **given)
        calibrator = Calibrator(model, config, calib_data=[[some_tokens(source)]])
        calibrator.run()
        calibrator.save(str(out), save_type=["ascendV1"])
        with torch.no_grad():
            modules = {n: x for n, x in calibrator.model.named_modules() if hasattr(x, "quant_weight")}
            return with_weights(source, {n: x.quant_weight(x.weight) for n, x in modules.items()})

    return write


def llama_cpp(kind):
    def write(source, out, checkout):
        plain = out / "plain.gguf"
        convert = [sys.executable, checkout / "convert_hf_to_gguf.py", source, "--outtype", "bf16", "--outfile", plain]
        run(*convert)
        run(checkout / "build/bin/llama-quantize", plain, out / f"{kind}.gguf", kind)
        plain.unlink()
        return load(out, gguf_file=f"{kind}.gguf")

    return write


FORMATS = {
    "ct-int8": ("llmcompressor", llm_compressor("W8A8")),
    "ct-int8-group": ("llmcompressor", llm_compressor(inputs=True, num_bits=8, group_size=64)),
    "ct-int8-asymmetric": ("llmcompressor", llm_compressor(inputs=True, num_bits=8, strategy="channel", symmetric=False)),
    "ct-pack-8": ("llmcompressor", llm_compressor(num_bits=8, group_size=64)),
    "ct-pack-4": ("llmcompressor", llm_compressor(num_bits=4, group_size=64, symmetric=False)),
    "ct-fp8": ("llmcompressor", llm_compressor("FP8_DYNAMIC")),
    "ct-fp8-blocks": ("llmcompressor", llm_compressor("FP8_BLOCK")),
    "ct-mxfp8": ("llmcompressor", llm_compressor("MXFP8A16")),
    "ct-mxfp4": ("llmcompressor", llm_compressor("MXFP4A16")),
    "ct-nvfp4": ("llmcompressor", llm_compressor("NVFP4A16")),
    "torchao-int8": ("torchao", torchao("Int8WeightOnlyConfig")),
    "torchao-fp8": ("torchao", torchao("Float8WeightOnlyConfig")),
    "torchao-mxfp8": ("torchao", torchao_mx(torch.float8_e4m3fn)),
    "torchao-mxfp8-e5m2": ("torchao", torchao_mx(torch.float8_e5m2)),
    "torchao-mxfp4": ("torchao", torchao_mx(torch.float4_e2m1fn_x2)),
    "torchao-nvfp4": ("torchao", torchao("NVFP4WeightOnlyConfig")),
    "torchao-int4": ("torchao", torchao("Int4WeightOnlyConfig", group_size=64)),
    "quanto-int8": ("optimum.quanto", quanto("qint8")),
    "quanto-fp8": ("optimum.quanto", quanto("qfloat8")),
    "fbgemm-fp8": ("fbgemm_gpu.experimental", fbgemm),
    "bitsandbytes": ("bitsandbytes", bitsandbytes),
    "mlx-8": ("mlx_lm", mlx(8, 64)),
    "mlx-4": ("mlx_lm", mlx(4, 64)),
    "mlx-3": ("mlx_lm", mlx(3, 64)),
    "mlx-mxfp8": ("mlx_lm", mlx(8, 32, "mxfp8")),
    "mlx-mxfp4": ("mlx_lm", mlx(4, 32, "mxfp4")),
    "mlx-nvfp4": ("mlx_lm", mlx(4, 16, "nvfp4")),
    "auto-round-8": ("auto_round", auto_round(8, True)),
    "auto-round-4": ("auto_round", auto_round(4, True)),
    "auto-round-3": ("auto_round", auto_round(3, True)),
    "auto-round-gptqmodel": ("auto_round", auto_round(4, False, "auto_round:gptqmodel")),
    "auto-round-gptq-8": ("auto_round", auto_round(8, True, "auto_gptq")),
    "auto-round-gptq-4": ("auto_round", auto_round(4, False, "auto_gptq")),
    "auto-round-awq": ("auto_round", auto_round(4, False, "auto_awq")),
    "hqq-8": ("hqq", hqq(8)),
    "hqq-4": ("hqq", hqq(4)),
    "hqq-3": ("hqq", hqq(3)),
    "hqq-3-axis-0": ("hqq", hqq(3, axis=0)),
    "hqq-2": ("hqq", hqq(2)),
    "hqq-4-axis-0": ("hqq", hqq(4, axis=0)),
    "hqq-4-floats": ("hqq", hqq(4, view_as_float=True)),
    "gptqmodel-8": ("gptqmodel", gptqmodel(8)),
    "gptqmodel-4-ordered": ("gptqmodel", gptqmodel(4, ordered=True)),
    "msmodelslim-w8a16": ("msmodelslim", msmodelslim(w_bit=8, a_bit=16, w_sym=True)),
    "msmodelslim-w8a16-offsets": ("msmodelslim", msmodelslim(w_bit=8, a_bit=16, w_sym=False)),
    "msmodelslim-w8a8-dynamic": ("msmodelslim", msmodelslim(w_bit=8, a_bit=8, is_dynamic=True)),
    "modelopt-fp8": ("modelopt", modelopt("FP8_DEFAULT_CFG")),
    "modelopt-fp8-channel": ("modelopt", modelopt("FP8_PER_CHANNEL_PER_TOKEN_CFG")),
    "modelopt-fp8-blocks": ("modelopt", modelopt("FP8_2D_BLOCKWISE_WEIGHT_ONLY_CFG")),
    "modelopt-mxfp8": ("modelopt", modelopt("MXFP8_DEFAULT_CFG", "MXFP8QTensor")),
    "modelopt-mxfp4": ("modelopt", modelopt("MXFP4_DEFAULT_CFG", "MXFP4QTensor")),
    "modelopt-nvfp4": ("modelopt", modelopt("NVFP4_DEFAULT_CFG", "NVFP4QTensor")),
    "modelopt-int8": ("modelopt", modelopt("INT8_WEIGHT_ONLY_CFG", "INT8QTensor")),
    "modelopt-int8-smoothquant": ("modelopt", modelopt("INT8_SMOOTHQUANT_CFG", "INT8QTensor")),
    "quark-fp8": ("quark", quark("FP8E4M3PerTensorSpec", observer_method="min_max")),
    "quark-fp8-channel": ("quark", quark("FP8E4M3PerChannelSpec", ch_axis=0)),
    "quark-int8": ("quark", quark("Int8PerChannelSpec", ch_axis=0, symmetric=True)),
    "quark-int8-group": ("quark", quark("Int8PerGroupSpec", ch_axis=1, group_size=64, symmetric=False)),
    "quark-uint4": ("quark", quark("Uint4PerGroupSpec", ch_axis=1, group_size=64)),
    "quark-int4": ("quark", quark("Int4PerGroupSpec", ch_axis=1, group_size=64)),
    "quark-uint4-row": ("quark", quark("Uint4PerChannelSpec", ch_axis=0)),
    "quark-mxfp4": ("quark", quark("OCP_MXFP4Spec", ch_axis=1)),
    "gguf-q8_0": ("gguf", llama_cpp("Q8_0")),
    "gguf-q6_k": ("gguf", llama_cpp("Q6_K")),
    "gguf-q4_k_m": ("gguf", llama_cpp("Q4_K_M")),
    "gguf-iq4_nl": ("gguf", llama_cpp("IQ4_NL")),
}


def run(*argv):
    result = subprocess.run(list(map(str, argv)), capture_output=True, text=True)
    if result.returncode != 0:
        raise RuntimeError(f"{Path(argv[0]).name}: {(result.stderr or result.stdout).strip()[-400:]}")
    return result.stdout


def perplexity_of(model, ids):
    with torch.inference_mode():
        logits = model(torch.tensor([ids])).logits[0].double()
    chosen = torch.log_softmax(logits, -1)[torch.arange(len(ids) - 1), torch.tensor(ids[1:])]
    return math.exp(-float(chosen.mean()))


def perplexity_in_qgen(qgen, folder, ids):
    model = next(iter(folder.glob("*.gguf")), folder)
    text = run(qgen, "score", "-m", model, "--tokens", ",".join(map(str, ids)), "--json", "--activations", "f32", "--kv", "f32")
    return json.loads(text)["perplexity"]


def is_there(library):
    try:
        return importlib.util.find_spec(library) is not None
    except ModuleNotFoundError:
        return False


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--qgen", default="build/qgen")
    parser.add_argument("--model", type=Path, required=True)
    parser.add_argument("--text", type=Path, required=True)
    parser.add_argument("--llama-cpp", type=Path)
    parser.add_argument("--only", default="")
    options = parser.parse_args()
    for name in ("qgen", "model", "llama_cpp"):
        if path := getattr(options, name):
            setattr(options, name, Path(path).resolve())
    transformers.logging.set_verbosity_error()
    transformers.logging.disable_progress_bar()
    tokenizer = transformers.AutoTokenizer.from_pretrained(options.model)
    ids = tokenizer(options.text.read_text()[: 16 * TOKENS]).input_ids[:TOKENS]
    print("| format | perplexity of the library's weights | in qgen | difference | |\n|---|---|---|---|---|")
    expected, found = perplexity_of(load(options.model), ids), perplexity_in_qgen(options.qgen, options.model, ids)
    print(f"| as it is | {expected:.5f} | {found:.5f} | | |")
    failed = False
    for name, (library, write) in FORMATS.items():
        if options.only not in name:
            continue
        if not is_there(library) or (library == "gguf" and options.llama_cpp is None):
            missing = f"{library} is not installed" if not is_there(library) else "no --llama-cpp"
            print(f"| {name} | {missing} | | | |", flush=True)
            continue
        with tempfile.TemporaryDirectory() as folder:
            out = Path(folder, name)
            out.mkdir()
            try:
                with contextlib.redirect_stdout(sys.stderr), contextlib.chdir(folder):  # libraries talk, and keep logs
                    model = write(options.model, out, *([options.llama_cpp] if library == "gguf" else []))
                expected = perplexity_of(model, ids)
                found = perplexity_in_qgen(options.qgen, out, ids)
            except Exception as error:  # whatever a library makes of it
                print(f"| {name} | {type(error).__name__}: {' '.join(str(error).split())[:300]} | | | FAIL |", flush=True)
                failed = True
                continue
            difference = found / expected - 1
            good = abs(difference) <= TOLERANCE
            failed |= not good
            print(f"| {name} | {expected:.5f} | {found:.5f} | {difference:+.1e} | {'' if good else 'FAIL'} |", flush=True)
    sys.exit(failed)


main()
