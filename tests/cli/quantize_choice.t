# `qgen quantize`: which matrices, what a failure leaves, and files of the model that are never written.

# --keep and --only: parts of names, or patterns for all of them, with or without ".weight". What engines fuse goes together
$ qgen quantize -m $ROOT/tests/golden/llama-bf16 --to int8 --keep layers.0.self_attn.q_proj.weight --keep '*.down_proj.weight' --out kept | grep -E "matrices quantized|left"; python3 $ROOT/tools/check_published.py kept; python3 -c 'import json; print(*json.load(open("kept/config.json"))["quantization_config"]["ignore"], sep="\n")' | grep layers.0
  model.safetensors  6 matrices quantized, 14 tensors copied * 5 compared: 5 GOOD (glob)
    1 file, 6 matrices quantized, 14 tensors as they were
    3 matrices left as they were: deselected
    1 matrix left as it was: embedding
    1 matrix left as it was: fused with one that is kept
    4 matrices left as they were: too narrow
  good: 6 quantized of 26 tensors
  model.layers.0.mlp.down_proj
  model.layers.0.self_attn.k_proj
  model.layers.0.self_attn.q_proj
  model.layers.0.self_attn.v_proj
$ qgen quantize -m $ROOT/tests/golden/llama-bf16 --to int8 --only mlp --keep layers.1 --out only | grep -E "matrices quantized|left"; python3 $ROOT/tools/check_published.py only
  model.safetensors  3 matrices quantized, 17 tensors copied * 3 compared: 3 GOOD (glob)
    1 file, 3 matrices quantized, 17 tensors as they were
    7 matrices left as they were: deselected
    1 matrix left as it was: embedding
    4 matrices left as they were: too narrow
  good: 3 quantized of 23 tensors
$ qgen quantize -m $ROOT/tests/golden/llama-bf16 --to int8 --only mlp --keep layer.1 --out other
stderr:
  qgen: --keep layer.1: no matrix has such a name
  hint: names are like model.layers.0.self_attn.v_proj; with * or ? a pattern is for the whole of it
exit: 2

# All experts of a layer, or none
$ qgen quantize -m $ROOT/tests/golden/qwen3_moe-bf16 --to int8 --keep experts.1.up_proj --out experts | grep -E "left"; python3 $ROOT/tools/check_published.py experts
    1 matrix left as it was: embedding
    2 matrices left as they were: fused with one that is kept
    1 matrix left as it was: output head
    1 matrix left as it was: router or gate
    19 matrices left as they were: too narrow
  good: 5 quantized of 43 tensors

# Stacks of experts that stay whole are named
$ qgen quantize -m $ROOT/tests/golden/gpt_oss-bf16 --to int8 --out stacks | grep "stack of"; grep -c 'mlp.experts"' stacks/config.json
    4 matrices left as they were: stack of experts
  2

# A matrix beyond a limit: exit code 1; the files are kept and marked, and loading them says so
$ qgen quantize -m $ROOT/tests/golden/llama-bf16 --to int8 --mode percentile --percentile 1 --verify all --out failed -q
stderr: qgen: failed: not for use: a matrix is beyond a limit; the files are kept and marked
exit: 1
$ ls failed; python3 -c 'import json; print(json.load(open("failed/FAILED.qgen.json"))["failed"][0]["name"])'; qgen score -m failed --tokens 1,2,3 | tail -1
  FAILED.qgen.json
  config.json
  model.safetensors
  model.layers.0.mlp.down_proj
  perplexity * over 2 tokens (glob)
stderr: qgen: warning: failed: model.layers.0.mlp.down_proj and 7 more failed the comparison with the original when it was quantized (FAILED.qgen.json)
$ qgen quantize -m failed --to int8 --out again -q; qgen inspect failed > /dev/null; qgen plan failed > /dev/null
stderr:
  qgen: warning: failed: model.layers.0.mlp.down_proj and 7 more failed the comparison with the original when it was quantized (FAILED.qgen.json)
  qgen: warning: failed: model.layers.0.mlp.down_proj and 7 more failed the comparison with the original when it was quantized (FAILED.qgen.json)
  qgen: warning: failed: model.layers.0.mlp.down_proj and 7 more failed the comparison with the original when it was quantized (FAILED.qgen.json)
$ qgen quantize -m $ROOT/tests/golden/llama-bf16 --to q8_0 --mode percentile --percentile 1 --verify all --out failed.gguf -q
stderr: qgen: failed.gguf: not for use: a matrix is beyond a limit; the files are kept and marked
exit: 1
$ ls failed.gguf*; qgen score -m failed.gguf --tokens 1,2,3 | tail -1
  failed.gguf
  failed.gguf.FAILED.qgen.json
  perplexity * over 2 tokens (glob)
stderr: qgen: warning: failed.gguf: model.embed_tokens and 12 more failed the comparison with the original when it was quantized (failed.gguf.FAILED.qgen.json)
$ qgen quantize -m $ROOT/tests/golden/llama-bf16 --to int8 --out failed --force -q; ls failed; qgen score -m failed --tokens 1,2,3 | tail -1
  config.json
  model.safetensors
  perplexity * over 2 tokens (glob)

# Files of the model are never written, by whatever name
$ cp -r $ROOT/tests/golden/llama-bf16 source; cksum source/model.safetensors > before; qgen quantize -m source --to q8_0 --out source/model.safetensors --force
stderr:
  qgen: --out: source/model.safetensors is a file of the model itself, which is never written
  hint: another name
exit: 2
$ ln -s source/model.safetensors link.gguf; qgen quantize -m source --to q8_0 --out link.gguf --force
stderr:
  qgen: --out: link.gguf is a file of the model itself, which is never written
  hint: another name
exit: 2
$ mkdir linked; ln -s ../source/model.safetensors linked/model.safetensors; qgen quantize -m source --to int8 --out linked --force
stderr:
  qgen: --out: linked/model.safetensors is a file of the model itself, which is never written
  hint: another name
exit: 2
$ cksum source/model.safetensors | cmp - before && ls linked
  model.safetensors

# From checkpoints whose quantization moved something out of the matrices: inputs' multipliers, norms, biases
$ for model in gptq-v1-asym-stories ct-pack-asym-stories msl-w8a8-stories msl-v1-w8a8-stories msl-w8a8-anti-stories msl-v1-fp8-qwen2 quanto-int8-stories modelopt-int8-sq-stories; do
>   for format in int8 q8_0; do
>     rm -rf new.gguf; qgen quantize -m $SHARED/fixtures/$model --to $format --verify all --out new.gguf -q
>     test $format = q8_0 || python3 $ROOT/tools/check_published.py new.gguf | sed 's/:.*//'
>     qgen score -m new.gguf --against $SHARED/fixtures/$model --tokens 1,403,407,261,378,432,383,285,440,269 | grep -c "KL divergence 0.00"
>   done
> done | sort | uniq -c
       16 1
        8 good
needs: test -d "$SHARED/fixtures"

# Experts that servers would not load
$ qgen quantize -m $SHARED/fixtures/arch/qwen3_moe-bf16 --to fp8-tensor --out mixture --verify 0 2>&1 >/dev/null
  qgen: warning: vLLM and SGLang load no experts in fp8-tensor; --to fp8-channel is for them
needs: test -d "$SHARED/fixtures"
$ qgen quantize -m $SHARED/fixtures/arch/qwen3_moe-bf16 --to fp8-channel --out mixture --force --verify 0 2>&1 >/dev/null | grep -c "load no experts"
  0
exit: 1
needs: test -d "$SHARED/fixtures"
