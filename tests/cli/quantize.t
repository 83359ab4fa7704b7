# `qgen quantize`: an 8-bit checkpoint from an unquantized one. Nothing is lost or half written.

# A report of what was written and how close it is
$ qgen quantize -m $ROOT/tests/golden/llama-bf16 --to int8 --out w8a8
  model.safetensors  [0-9]+ matrices quantized, [0-9]+ tensors copied  [0-9.]+ KiB in [0-9.]+ s  5 compared: 5 GOOD (re)
  
  w8a8: int8, scales by max
    1 file, [0-9]+ matrices quantized, [0-9]+ tensors as they were (re)
  ...
    cosine, least * GOOD  at least 0.995 * (glob)
  ...

# It runs, and the folder has nothing else
$ ls w8a8; qgen plan -m w8a8 | head -1; qgen score -m w8a8 --tokens 1,2,3,4 | tail -1
  config.json
  model.safetensors
  llama [0-9]+K · int8 channel · cpu (re)
  perplexity [0-9.]+ over 3 tokens (re)

# While loading: the same numbers
$ qgen score -m $ROOT/tests/golden/llama-bf16 --quantize int8 --tokens 1,2,3,4,5,6 > loaded; qgen score -m w8a8 --tokens 1,2,3,4,5,6 | cmp - loaded && echo same
  same

# `qgen verify` compares any two checkpoints of one model
$ qgen verify -m w8a8 --against $ROOT/tests/golden/llama-bf16
  w8a8 (int8 channel) beside llama-bf16 (bf16)
    8 matrices compared: 8 GOOD
  ...
$ qgen verify -m w8a8 --against w8a8 --json
json: stdout schemas/verify.schema.json
where: it["verdict"] == "GOOD" and all(c["largest_error"] == 0 for c in it["comparisons"])
$ cp -r w8a8 other-norm; python3 - <<'END'
> import json, struct
> path = "other-norm/model.safetensors"
> data = bytearray(open(path, "rb").read())
> size = struct.unpack("<Q", data[:8])[0]
> begin = json.loads(data[8:8 + size])["model.norm.weight"]["data_offsets"][0]
> data[8 + size + begin + 1] ^= 1
> open(path, "wb").write(data)
> END
> qgen verify -m other-norm --against w8a8 | grep vector; qgen verify -m other-norm --against w8a8 --json | grep -o '"verdict":"FAIL","comp'
    FAIL  vector model.norm.weight differs by up to * (glob)
  "verdict":"FAIL","comp
exit: 1
$ qgen verify -m w8a8 --against $MODEL
stderr:
  qgen: w8a8: model.embed_tokens has another shape than in stories260K-FP8 (expected [512, 64], found [64, 32])
  hint: --against names the model that the other was made from
exit: 3

# From one 8-bit format to another; what servers want is there
$ qgen quantize -m $MODEL --to int8 --out converted | grep -E "left|was|GOOD$"; python3 $ROOT/tools/check_published.py converted; qgen verify -m converted --against $MODEL | sed -n 2p
  model.safetensors  35 matrices quantized, 12 tensors copied * 5 compared: 5 GOOD (glob)
    1 matrix left as it was: embedding
    the original was quantized itself: the errors are those that were added to its own
  5 matrices compared: 5 GOOD
  good: 35 quantized of 82 tensors
    35 matrices compared: * (glob)
$ for format in fp8-channel fp8-tensor int8-tensor mxfp8; do qgen quantize -m $ROOT/tests/golden/llama-bf16 --to $format --out served-$format -q; python3 $ROOT/tools/check_published.py served-$format; done
  good: 8 quantized of 28 tensors
  good: 8 quantized of 28 tensors
  good: 8 quantized of 28 tensors
  good: 6 quantized of 26 tensors
$ for model in gptq-v1-actorder-stories mlx-affine64-stories arch/qwen3_5-fp8 arch/qwen3_moe-fp8 arch/qwen3_5_moe-bf16; do
>   rm -rf from; qgen quantize -m $SHARED/fixtures/$model --to int8 --verify all --out from -q; python3 $ROOT/tools/check_published.py from | sed 's/:.*//'
>   qgen verify -m from --against $SHARED/fixtures/$model --json | grep -o '"verdict":"[A-Z]*"' | head -1
> done | sort | uniq -c
        5 "verdict":"GOOD"
        5 good
needs: test -d "$SHARED/fixtures"

# Bytes are those that files store, of a quantized source too
$ qgen quantize -m $MODEL --to int8 --out counted --report json 2>&1 | python3 -c 'import json, os, sys; it = json.load(sys.stdin); size = os.path.getsize(sys.argv[1]); print(0.9 * size < it["bytes_read"] <= size)' $MODEL/model.safetensors
  True
$ qgen quantize -m $MODEL --to q8_0 --out counted.gguf --report json 2>&1 | python3 -c 'import json, os, sys; it = json.load(sys.stdin); size = os.path.getsize(sys.argv[1]); print(0.9 * size < it["bytes_read"] <= size)' $MODEL/model.safetensors
  True

# A method that is not known is refused, as when it runs, unless the tensors are to be trusted
$ mkdir unknown && cp $MODEL/* unknown/ && sed -i 's/"quant_method": "fp8"/"quant_method": "qqq9"/' unknown/config.json && qgen quantize -m unknown --to int8 --out never
stderr:
  qgen: *config.json: quantization_config.quant_method: 'qqq9' is not known (glob)
  *--trust-tensors* (glob)
exit: 3
$ qgen quantize -m unknown --trust-tensors --to int8 --out trusted -q; cmp trusted/model.safetensors converted/model.safetensors && echo same
  same

# A GGUF file for llama.cpp, tokenizer and all; `verify` finds the rows that are laid out for another rotation
$ qgen quantize -m $MODEL --to q8_0 --out story-Q8_0.gguf --verify all | grep -E "GOOD$|left"
  story-Q8_0.gguf  31 matrices quantized, 16 tensors copied * 36 compared: 36 GOOD (glob)
    5 matrices left as they were: too narrow
  36 matrices compared: 36 GOOD
$ ls story*; qgen verify -m story-Q8_0.gguf --against $MODEL | sed -n 2p; qgen inspect -m story-Q8_0.gguf | grep -ciE "q8_0"
  story-Q8_0.gguf
    36 matrices compared: 36 GOOD
  [1-9] (re)
$ for model in story-Q8_0.gguf $MODEL; do printf 'Once upon a time, Lily\n went  to 3 parks.' | qgen tokens -m $model | cksum; qgen -m $model -p "Once upon a time" -n 12 --temp 0; echo; done | sort | uniq -c | sed 's/^ *//'
  2 , there was a little girl named Lily. She
  2 [0-9]+ [0-9]+ (re)
$ qgen quantize -m $MODEL --to q8_0 --out story-Q8_0.gguf
stderr:
  qgen: --out story-Q8_0.gguf: is there already
  hint: another name, or --force
exit: 2
$ qgen quantize -m $MODEL --to q8_0 --out . --force
stderr:
  qgen: --out .: a folder (expected a file)
  hint: --out ./model-Q8_0.gguf
exit: 2
$ qgen quantize -m $MODEL --to q8_0 --out again.gguf --resume
stderr:
  qgen: --resume: without effect
  hint: it belongs to formats in folders; a GGUF file appears once it is complete
exit: 2
$ qgen quantize -m $ROOT/tests/golden/qwen3_next-bf16 --to q8_0 --out hybrid.gguf 2>&1 | head -1; test -e hybrid.gguf || echo nothing
  qgen: qwen3_next-bf16: a delta net whose keys and values differ in size is not written to GGUF files
  nothing

# Matrices that are stored (inputs, outputs): what only qgen would read is written as int8-tensor alone
$ qgen quantize -m $ROOT/tests/golden/gpt2-bf16 --to int8 --out gpt2
stderr:
  qgen: gpt2-bf16: matrices that are stored (inputs, outputs) are not written as int8
  hint: no server reads them so; --to int8-tensor writes what qgen reads
exit: 3
$ qgen quantize -m $ROOT/tests/golden/gpt2-bf16 --to int8-tensor --out gpt2 -q; qgen plan -m gpt2 | head -1
  gpt2 [0-9]+K · int8 tensor · cpu (re)

# As JSON
$ qgen quantize -m $ROOT/tests/golden/llama-bf16 --to fp8-channel --mode mse --verify all --out f8 --report json
json: stdout schemas/quantize.schema.json
where: it["verdict"] == "GOOD" and it["mode"] == "mse" and it["recommendations"] == []
where: len(it["files"][0]["comparisons"]) == it["files"][0]["quantized"]
$ qgen quantize -m $ROOT/tests/golden/llama-bf16 --to int8-tensor --mode percentile --percentile 50 --out clipped -q --report json 2> /dev/null
json: stdout schemas/quantize.schema.json
where: it["verdict"] == "FAIL" and it["recommendations"][0].startswith("cosine: a scale for each row") and it["files"][0]["comparisons"][0]["cosine_verdict"] == "FAIL"
exit: 1

# Nothing is overwritten
$ qgen quantize -m $ROOT/tests/golden/llama-bf16 --to int8 --out w8a8
stderr:
  qgen: --out w8a8: the folder is not empty
  hint: another folder, or --force to replace files of the same names
exit: 2
$ cp -r $ROOT/tests/golden/llama-bf16 source; qgen quantize -m source --to int8 --out source/../source --force
stderr: qgen: --out source/../source: the folder of the model itself
exit: 2
$ cp w8a8/model.safetensors before; qgen quantize -m $ROOT/tests/golden/llama-bf16 --to int8 --out w8a8 --force -q && cmp before w8a8/model.safetensors

# An unfinished folder is refused, and --resume ends it
$ mkdir half; cp w8a8/* half; rm half/config.json; echo '{}' > half/INCOMPLETE.qgen.json; qgen score -m half --tokens 1,2
stderr:
  qgen: half: this checkpoint is not complete, its quantization has not ended
  hint: the same `qgen quantize` command with --resume goes on
exit: 3
$ qgen quantize -m $ROOT/tests/golden/llama-bf16 --to int8 --out half
stderr:
  qgen: --out half: holds an unfinished checkpoint
  hint: --resume goes on with it, --force begins again
exit: 2
$ qgen quantize -m $ROOT/tests/golden/llama-bf16 --to int8 --out half --resume
stderr:
  qgen: --resume: half was begun from another model or with other options
  hint: half/INCOMPLETE.qgen.json says which; --force begins again
exit: 2

# Experts that stay as they were are declared by the names that servers ask for
$ for model in gpt_oss granite_hybrid; do qgen quantize -m $ROOT/tests/golden/$model-bf16 --to fp8-channel --out kept-$model -q; python3 $ROOT/tools/check_published.py kept-$model; done; qgen quantize -m $ROOT/tests/golden/qwen3_moe-bf16 --to fp8-channel --keep experts --out kept -q; python3 $ROOT/tools/check_published.py kept
  good: 2 quantized of 39 tensors
  good: 7 quantized of 35 tensors
  good: 5 quantized of 43 tensors

# A GGUF file becomes a checkpoint, and the same file again
$ GGUF=$ROOT/tests/golden-gguf/qwen3_moe.gguf; qgen quantize -m $GGUF --to fp8-channel --out of-gguf -q; python3 $ROOT/tools/check_published.py of-gguf; qgen verify -m of-gguf --against $GGUF | sed -n 2p; qgen quantize -m $GGUF --to q8_0 --out again.gguf -q; qgen verify -m again.gguf --against $GGUF | sed -n 2p
  good: * (glob)
    2 matrices compared: 2 GOOD
    28 matrices compared: 28 GOOD
$ qgen quantize -m $ROOT/tests/golden-gguf/granite_hybrid.gguf --to int8 --out no
stderr:
  qgen: granite_hybrid.gguf: experts that transformers stacks cannot be converted from this layout
  hint: start from the model's Hugging Face files
exit: 3

# A disk that takes no more: the rest stays refused, and --resume gives what one run would have
$ (ulimit -f 1; trap '' XFSZ; qgen quantize -m $ROOT/tests/golden/llama-bf16 --to int8 --out full -q); ls full; qgen quantize -m $ROOT/tests/golden/llama-bf16 --to int8 --out full --resume -q && cmp before full/model.safetensors && ls full
  INCOMPLETE.qgen.json
  config.json
  model.safetensors
stderr:
  qgen: full/model.safetensors: cannot write: File too large
  hint: the same command with --resume goes on

# NaN is an error that names the tensor
$ cp -r source broken; python3 - <<'END'
> import json, struct
> path = "broken/model.safetensors"
> data = bytearray(open(path, "rb").read())
> size = struct.unpack("<Q", data[:8])[0]
> begin = json.loads(data[8:8 + size])["model.layers.0.mlp.down_proj.weight"]["data_offsets"][0]
> data[8 + size + begin:8 + size + begin + 2] = b"\xff\x7f"
> open(path, "wb").write(data)
> END
> qgen quantize -m broken --to int8 --out broken8
stderr:
  qgen: broken/model.safetensors: tensor model.layers.0.mlp.down_proj.weight: holds NaN or infinity
  hint: the file is damaged, or the weights overflowed when it was made
exit: 3

# So is one in what is copied, a norm or the embedding, and in what a GGUF file has as floats
$ for tensor in model.norm.weight model.embed_tokens.weight; do
>   rm -rf broken broken8 broken.gguf; cp -r source broken; python3 - $tensor <<'END'
> import json, struct, sys
> path = "broken/model.safetensors"
> data = bytearray(open(path, "rb").read())
> size = struct.unpack("<Q", data[:8])[0]
> begin = json.loads(data[8:8 + size])[sys.argv[1]]["data_offsets"][0]
> data[8 + size + begin + 2:8 + size + begin + 4] = b"\x80\xff"
> open(path, "wb").write(data)
> END
>   for to in "int8 --out broken8" "q8_0 --out broken.gguf"; do qgen quantize -m broken --to $to; echo $?; done
> done
  3
  3
  3
  3
stderr:
  qgen: broken/model.safetensors: tensor model.norm.weight: holds NaN or infinity
  hint: the file is damaged, or the weights overflowed when it was made
  qgen: broken/model.safetensors: tensor model.norm.weight: holds NaN or infinity
  hint: the file is damaged, or the weights overflowed when it was made
  qgen: broken/model.safetensors: tensor model.embed_tokens.weight: holds NaN or infinity
  hint: the file is damaged, or the weights overflowed when it was made
  qgen: broken/model.safetensors: tensor model.embed_tokens.weight: holds NaN or infinity
  hint: the file is damaged, or the weights overflowed when it was made

# Buffers, which are no weights, may hold infinities and are copied
$ rm -rf broken broken8; cp -r source broken; python3 - <<'END'
> import json, struct
> path = "broken/model.safetensors"
> data = open(path, "rb").read()
> size = struct.unpack("<Q", data[:8])[0]
> header, values = json.loads(data[8:8 + size]), data[8 + size:]
> header["model.layers.0.self_attn.rotary_emb.inv_freq"] = {
>     "dtype": "F32", "shape": [2], "data_offsets": [len(values), len(values) + 8]}
> text = json.dumps(header).encode()
> open(path, "wb").write(struct.pack("<Q", len(text)) + text + values + struct.pack("<2f", float("inf"), 1.0))
> END
> qgen quantize -m broken --to int8 --out broken8 -q; python3 - <<'END'
> import json, struct
> data = open("broken8/model.safetensors", "rb").read()
> size = struct.unpack("<Q", data[:8])[0]
> begin, end = json.loads(data[8:8 + size])["model.layers.0.self_attn.rotary_emb.inv_freq"]["data_offsets"]
> print(struct.unpack("<2f", data[8 + size + begin:8 + size + end]))
> END
  (inf, 1.0)

# What cannot be
$ qgen quantize -m $MODEL --to int8
stderr:
  qgen: quantize: no folder to write
  hint: --out DIR, or --out FILE.gguf for --to q8_0
exit: 2
$ qgen quantize -m source --to int4 --out x
stderr:
  qgen: --to: 'int4' is not allowed (expected fp8, fp8-channel, fp8-tensor, int8, int8-tensor, mxfp8, q8_0)
  hint: `qgen quantize --help` lists the options
exit: 2
$ qgen quantize -m source --to int8 --out x --percentile 99
stderr:
  qgen: --percentile: without effect
  hint: it belongs to --mode percentile
exit: 2
$ qgen quantize -m source --to int8 --out x --only nothing
stderr:
  qgen: --only nothing: no matrix has such a name
  hint: names are like model.layers.0.self_attn.v_proj; with * or ? a pattern is for the whole of it
exit: 2
$ qgen -m $MODEL -p x --quantize int8 -n 1
stderr:
  qgen: --quantize int8: stories260K-FP8 has no unquantized matrix (fp8 block 128x128)
  hint: the model as it is
exit: 3

# A config.json that names no model is none
$ cp -rL source damaged && printf '{"hidden_size": 64}' > damaged/config.json; qgen quantize -m damaged --to int8 --out x
stderr:
  qgen: damaged/config.json: says no model_type
  hint: a Hugging Face config.json names one: is this one damaged?
exit: 3
