# `qgen bench`: prefill and decode speed after contexts of some depths, as a table, md, csv or json.

# The table: what was measured, and what the machine can do
$ qgen bench -m $MODEL -p 16 -n 8 -d 0,64 -r 2
  llama 260K · fp8 block 128x128 · cpu *, * · kv f16 · median of 2 (glob)
    test * tok/s * (glob)
    pp16 * %* (glob)
    tg8 * (glob)
    pp16 @ d64 * %* (glob)
    tg8 @ d64 * (glob)
    measured beside it: read * GB/s · int8 * · float * (glob)

# As JSON
$ qgen bench -m $MODEL -p 16 -n 8 -d 0,64 -r 3 --output json
json: stdout schemas/bench.schema.json
where: [t["name"] for t in it["tests"]] == ["pp16", "tg8", "pp16 @ d64", "tg8 @ d64"]
where: all(len(t["seconds"]) == it["rounds"] == 3 for t in it["tests"])
where: all(t["tokens_per_second"]["lowest"] <= t["tokens_per_second"]["median"] <= t["tokens_per_second"]["highest"] for t in it["tests"])
where: all(abs(t["tokens_per_second"]["highest"] * min(t["seconds"]) / t["tokens"] - 1) < 0.02 for t in it["tests"])
where: it["context"] >= 64 + 16 and it["random_weights"] is False

# As CSV: a head and a row a test, all of the same width
$ qgen bench -m $MODEL -p 16,32 -n 8 -d 0 -r 1 --output csv | python3 -c "
> import csv, sys
> rows = list(csv.reader(sys.stdin))
> print([row[2] for row in rows], {len(row) for row in rows} == {len(rows[0])})"
  ['test', 'pp16', 'pp32', 'tg8'] True

# As Markdown
$ qgen bench -m $MODEL -p 16 -n 8 -d 0 -r 1 --output md
  llama 260K · * (glob)
  
  | test | tok/s | * | (glob)
  |---|---:|* (glob)
  | pp16 | * | (glob)
  | tg8 | * | (glob)
  ...

# A model is quantized while it is loaded, as for other commands; random weights are those of a config.json
$ qgen bench -m $ROOT/tests/golden/llama-bf16 --quantize int8 -p 0 -n 4 -d 0 -r 1 --output csv | tail -n 1 | cut -d '"' -f 4
  int8 channel, rounded from bf16
$ qgen bench --dummy $MODEL --quantize int8 -p 0 -n 4
stderr:
  qgen: --quantize: random weights are made as config.json declares them
  hint: a config.json of that method, or --model
exit: 2

# Only one of the two
$ qgen bench -m $MODEL -p 0 -n 8 -d 0 -r 1 --output json
json: stdout schemas/bench.schema.json
where: [t["name"] for t in it["tests"]] == ["tg8"]

$ qgen bench -m $MODEL -p 16 -n 0 -d 0 -r 1 --output json
json: stdout schemas/bench.schema.json
where: [t["name"] for t in it["tests"]] == ["pp16"]

# The reference engine, and INT8
$ qgen bench -m $INT8 -p 4 -n 2 -d 0 -r 1 --device reference --output json
json: stdout schemas/bench.schema.json
where: it["engine"].startswith("reference") and it["method"] == "int8 channel"

# Random weights in the shapes of a config.json
$ mkdir shapes && cp $MODEL/config.json shapes/

$ qgen bench --dummy shapes -p 16 -n 8 -d 0 -r 1 --output json
json: stdout schemas/bench.schema.json
where: it["random_weights"] is True and it["parameters"] == 260032 and it["method"] == "fp8 block 128x128"

# Everything from the environment
$ QGEN_MODEL=$MODEL QGEN_PREFILL=4 QGEN_DECODE_TOKENS=2 QGEN_DEPTH=8 QGEN_ROUNDS=1 QGEN_OUTPUT=json qgen bench
json: stdout schemas/bench.schema.json
where: [t["name"] for t in it["tests"]] == ["pp4 @ d8", "tg2 @ d8"] and it["rounds"] == 1

$ QGEN_DUMMY=shapes qgen bench -p 4 -n 0 -d 0 -r 1 --output json
json: stdout schemas/bench.schema.json
where: it["random_weights"] is True

# Nothing to measure
$ qgen bench -m $MODEL -p 0 -n 0
stderr:
  qgen: * (glob)
  ...
exit: 2

# A list that is none
$ qgen bench -m $MODEL -p 16,x
stderr:
  qgen: --prefill*x* (glob)
  ...
exit: 2

# A form that is not there
$ qgen bench -m $MODEL --output xml
stderr:
  qgen: --output: 'xml' is not allowed (expected table, md, csv, json)
  ...
exit: 2

# --model and --dummy
$ qgen bench -m $MODEL --dummy shapes
stderr:
  qgen: bench: --model and --dummy
  ...
exit: 2

# A folder without weights says what can be done with it
$ qgen bench -m shapes
stderr:
  qgen: shapes: its weights are not there
  hint: *--dummy* (glob)
exit: 3

# Deeper than the model's context
$ qgen bench -m $MODEL -p 4 -n 0 -d 600 -r 1
stderr:
  qgen: stories260K-FP8: 4 tokens after a depth of 600 do not fit in the context (expected at most 512, found 604)
  hint: * (glob)
exit: 2

# Ctrl-C
$ qgen bench -m $MODEL -p 512 -n 512 -r 1000
  ...
stderr: ...
wait: 500 ms
signal: INT
exit: 130

# JSON, for lists of tokens and depths
$ qgen bench -m $INT8 -p 8,16 -n 4 -d 0,64 -r 3 --output json --kv bf16 --threads 1
  ...
json: stdout schemas/bench.schema.json
where: [t["name"] for t in it["tests"]] == ["pp8", "pp16", "tg4", "pp8 @ d64", "pp16 @ d64", "tg4 @ d64"]
where: all(len(t["seconds"]) == 3 for t in it["tests"]) and it["context"] == 80 and it["kv_type"] == "bf16"
where: it["tests"][0]["peak"] == "int8" and it["tests"][0]["peak_share"] > 0
where: it["tests"][2]["read_share"] is None, "a model that lies in a cache is not compared with the memory"
where: not it["random_weights"] and it["device"]["read_bytes_per_second"] > 1e8

# The usual tests, as far as they fit in the context of the model
$ qgen bench -m $MODEL -r 1 --output csv | cut -d, -f3
  test
  pp512
  tg128

# Random weights from a config.json alone
file: config.json
  {"model_type": "llama", "num_hidden_layers": 2, "hidden_size": 256, "num_attention_heads": 4,
   "intermediate_size": 512, "vocab_size": 1000, "max_position_embeddings": 4096,
   "quantization_config": {"quant_method": "fp8", "weight_block_size": [128, 128]}}
$ qgen bench --dummy . -p 16 -n 4 -r 1 --output json
  ...
json: stdout schemas/bench.schema.json
where: it["random_weights"] and it["method"] == "fp8 block 128x128" and it["family"] == "llama"

# Without weights a model cannot be run
$ qgen bench -m . -p 16
stderr:
  qgen: *: its weights are not there (glob)
  hint: --dummy . measures with random weights of the same shapes
exit: 3

# Tokens beyond the context are an error before any work
$ qgen bench --dummy . -p 16 -n 32 -d 0,5000
stderr:
  qgen: *: 32 tokens after a depth of 5000 do not fit in the context (expected at most 4096, found 5032) (glob)
  hint: -d 4064 is the deepest
exit: 2

# Ctrl-C ends the test at hand and keeps the rows that are finished
$ qgen bench -m $MODEL -p 16 -n 500 -d 0 -r 10000 --output csv
exit: 130
wait: 1500 ms
signal: INT

$ qgen bench -m $MODEL -p 4,300 -n 0 -d 0 -r 200 --device reference --output json
needs: test -z "$QGEN_TIME_FACTOR"
exit: 130
json: stdout schemas/bench.schema.json
wait: 3 s
signal: INT
where: [test["name"] for test in it["tests"]] == ["pp4"] and len(it["tests"][0]["seconds"]) == 200

# Copies of FP8 matrices with NaN codes are in its account, two bytes more for each code; in that of `plan` they are not
$ cp -r $MODEL nan && python3 - << 'END'
> import json, struct
> data = bytearray(open("nan/model.safetensors", "rb").read())
> size = struct.unpack("<Q", data[:8])[0]
> begin, end = json.loads(data[8:8 + size])["model.layers.0.mlp.down_proj.weight"]["data_offsets"]
> data[8 + size + begin] = 0x7F
> open("nan/model.safetensors", "wb").write(data)
> print(end - begin)
> END
  11008

$ for model in $MODEL nan; do qgen plan -m $model --device cpu --json; qgen bench -m $model --device cpu -p 4 -n 0 -d 0 -r 1 --output json; done
jsonl: stdout
where: [account["memory"]["weights"] - it[0]["memory"]["weights"] for account in it] == [0, 0, 0, 2 * 11008]

# Numbers out of range are told apart from what is no list of numbers
$ qgen bench -m $MODEL -p 99999999999999
stderr:
  qgen: --prefill 99999999999999: out of range (expected at most 2147483648)
  ...
exit: 2
$ qgen bench -m $MODEL --parallel auto
stderr:
  qgen: --parallel: 'auto' is not a list of numbers (expected 8 or 8,16)
  ...
exit: 2
