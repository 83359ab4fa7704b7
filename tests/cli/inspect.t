# `qgen inspect`: family, quantization found and why, tensors, steps.

# What it is, and what says so
$ qgen inspect -m $MODEL
  stories260K-FP8
    family    llama
    method    fp8 block 128x128
              35 of 36 matrices, 221 KiB: fp8 block 128x128 (weight F8_E4M3, weight_scale_inv BF16; layout fp8)
              1 of 36 matrices, 64.0 KiB: bf16 (weight BF16; layout none)
                model.embed_tokens
    declared  quant_method fp8 (config.json)
    shape     5 layers, hidden 64, 8 heads of 8 (4 kv), ffn 172, vocabulary 512
    context   512 tokens
    head      tied to the embedding
    size      260032 parameters, 288 KiB of weights, 288 KiB read for a token
    file      model.safetensors: 82 tensors, 287 KiB

# INT8
$ qgen inspect -m $INT8
  stories260K-w8a8
    family    llama
    method    int8 channel
  ...
    declared  *compressed-tensors* (glob)
  ...

# As JSON
$ qgen inspect -m $MODEL --json
json: stdout schemas/inspect.schema.json
where: it["family"] == "llama" and it["method"] == "fp8 block 128x128" and it["parameters"] == 260032
where: sum(len(e["modules"]) for e in it["evidence"]) == 36 and "tensors" not in it and "steps" not in it

# Of a mixture, its experts; of a hybrid, its recurrent layers
$ qgen inspect -m $ROOT/tests/golden/qwen3_next-bf16 --json
json: stdout schemas/inspect.schema.json
where: [it["shape"][k] for k in ("experts", "experts_per_token", "expert_width", "recurrent_layers")] == [5, 2, 24, 1]

# Every tensor of the file, with its scale
$ qgen inspect -m $MODEL --tensors --json
json: stdout schemas/inspect.schema.json
where: len(it["tensors"]) == 82 and len({t["name"] for t in it["tensors"]}) == 82
where: [t["scale"] for t in it["tensors"] if t["name"] == "model.layers.0.mlp.down_proj.weight"] == [{"tiles": [1, 2], "group": [128, 128]}]
where: [t["method"] for t in it["tensors"] if t["name"] == "model.layers.0.mlp.down_proj.weight"] == ["fp8 block 128x128"]

# Every step
$ qgen inspect -m $MODEL --steps --json
json: stdout schemas/inspect.schema.json
where: it["steps"][0]["step"] == "lookup" and len(it["steps"]) == 2 + 5 * 5
where: it["steps"][5] == {"step": "linear+add", "layer": 0, "rows": "inner, residual > residual", "weights": [{"name": "model.layers.0.mlp.down_proj", "shape": [64, 172], "method": "fp8 block 128x128"}]}

# As tables
$ qgen inspect -m $MODEL --tensors | grep down_proj.weight | head -n 2
    model.layers.0.mlp.down_proj.weight               F8_E4M3  [64, 172]  fp8 block 128x128  1x2 groups of 128x128  model.safetensors
    model.layers.0.mlp.down_proj.weight_scale_inv     BF16     [1, 2]     -                  -                      model.safetensors

$ qgen inspect -m $MODEL --steps | tail -n 1
    26  norm+linear       residual > scores           (512, 64) bf16

# Of many alike, their number
$ qgen inspect $ROOT/tests/golden/mixtral-bf16 --steps | grep -m 1 experts+
     7  experts+silu+add  normed, route, residual > residual  10 x (40, 32) bf16  5 x (32, 40) bf16

# Tables stay in a narrow terminal as they are
$ qgen inspect -m $MODEL
  stories260K-FP8
  ...
tty: out 20x5

# What config.json says of the method is told, but tensors decide
$ mkdir told && cp $MODEL/* told/ && sed -i 's/"quant_method": "fp8"/"quant_method": "awq"/' told/config.json

$ qgen inspect -m told --json
json: stdout schemas/inspect.schema.json
where: it["method"] == "fp8 block 128x128" and "awq" in it["declared"]

# A method that is not known is refused, unless the tensors are to be trusted
$ sed -i 's/"quant_method": "awq"/"quant_method": "qqq9"/' told/config.json && qgen inspect -m told
stderr:
  qgen: *config.json: quantization_config.quant_method: 'qqq9' is not known (glob)
  *--trust-tensors* (glob)
exit: 3

$ qgen inspect -m told --trust-tensors | head -n 3
  told
    family    llama
    method    fp8 block 128x128

$ sed -i 's/"quant_method": "qqq9"/"quant_method": "eetq"/' told/config.json && qgen inspect -m told --trust-tensors
stderr:
  qgen: *'eetq' is not supported: EETQ interleaves its codes for one kernel (glob)
  *Q8_0* (glob)
exit: 3

$ sed -i 's/"quant_method": "eetq"/"quant_method": "awq"/' told/config.json

# No tokenizer is needed
$ rm told/tokenizer.json && qgen inspect -m told > /dev/null

# A broken file
$ head -c 1000 $MODEL/model.safetensors > told/model.safetensors; qgen inspect -m told
stderr:
  qgen: told/model.safetensors: * (expected *, found *) (glob)
  ...
exit: 3

# No model
$ qgen inspect
stderr:
  qgen: no model
  ...
exit: 2

# It is quick
$ qgen inspect -m $MODEL --tensors --steps > /dev/null
within: 100 ms
