# Lines of a batch that are answered together.
$ python3 - << 'END'
> import json
> prompts = ["Once upon a time", "The dog", "Lily saw a", "Tom and his mom went to the park. They", "One day"]
> with open("in.jsonl", "w") as out:
>     for i in range(14):
>         line = {"id": i, "prompt": prompts[i % 5], "raw": True, "seed": i, "temperature": [0, 0.8][i % 2], "max_tokens": 4 + i * 5 % 31}
>         out.write(json.dumps(line) + "\n")
> END

# An answer depends on its line alone, not on how many run together or what they are
$ for n in 2 3 16 auto; do qgen -m $MODEL --batch in.jsonl --parallel $n | sed -E 's/"seconds":[0-9.]+/_/' > out.$n; done; cmp out.2 out.3 && cmp out.2 out.16 && cmp out.2 out.auto && wc -l < out.2
  14

$ tail -n +8 in.jsonl | qgen -m $MODEL --batch - --parallel 4 --threads 1 | sed -E 's/"seconds":[0-9.]+/_/; s/"line":[0-9]+/_/' > half; tail -n +8 out.2 | sed -E 's/"line":[0-9]+/_/' | cmp - half

# In the order of the lines, errors too; or as they come
$ { sed -n 1,3p in.jsonl; echo '{"id": "bad"}'; sed -n 4,14p in.jsonl; } > mixed.jsonl; qgen -m $MODEL --batch mixed.jsonl --parallel 16 | grep -oE '"id":[^,]+' | tr '\n' ' '
  "id":0 "id":1 "id":2 "id":"bad" "id":3 "id":4 "id":5 "id":6 "id":7 "id":8 "id":9 "id":10 "id":11 "id":12 "id":13  (no-eol)
stderr:
  qgen: 1 of 15 lines failed
  hint: the first: line 4: no "prompt" and no "messages"
exit: 1

$ printf '%s\n' '{"id":"long","prompt":"Once","max_tokens":60,"temperature":0}' '{"id":"short","prompt":"Once","max_tokens":2,"temperature":0}' > two.jsonl; for how in "" --unordered; do qgen -m $MODEL --batch two.jsonl --parallel 2 $how | grep -oE '"id":"[a-z]+"'; done
  "id":"long"
  "id":"short"
  "id":"short"
  "id":"long"

# An answer never waits for a line that is still to come
$ python3 - << 'END'
> import json, os, subprocess
> run = subprocess.Popen(["qgen", "-m", os.environ["MODEL"], "--batch", "-", "-n", "3"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
> for i in range(3):
>     run.stdin.write(json.dumps({"id": i, "prompt": "Once"}) + "\n" + ('{"id": "half' if i == 1 else ""))
>     run.stdin.flush()
>     print(json.loads(run.stdout.readline())["id"])
>     if i == 1: run.stdin.write('", "prompt": "The"}\n')
> run.stdin.close()
> print(json.loads(run.stdout.readline())["id"], run.wait())
> END
  0
  1
  half
  2 0

# What is written together shares its beginning
$ python3 -c "
> import json
> beginning = 'Once upon a time there was a little girl named Lily. ' * 8
> for i in range(8): print(json.dumps({'prompt': beginning + 'abcdefgh'[i], 'raw': True, 'max_tokens': 4}))" > alike.jsonl; qgen -m $MODEL --batch alike.jsonl --parallel 4 --stats=json 2> stats.json > /dev/null; python3 -c "
> import json
> stats = json.load(open('stats.json'))
> print(stats['parallel'], stats['lines'], stats['prompt_tokens'] > 6 * stats['computed_tokens'])"
  4 8 True

# Pages for one context only: lines wait for each other
$ qgen -m $MODEL --batch in.jsonl --parallel 16 -c 64 | sed -E 's/"seconds":[0-9.]+/_/' | cmp - out.2

$ qgen -m $MODEL --batch in.jsonl --prompt-lookup 4 --stats=json 2>&1 > /dev/null | grep -o '"parallel":[0-9]*'
  "parallel":1

$ qgen -m $MODEL --batch in.jsonl --prompt-lookup 4 --parallel 2
stderr:
  qgen: --parallel 2: no place for --prompt-lookup
  hint: * (glob)
exit: 2

$ qgen -m $MODEL --batch in.jsonl --parallel many
stderr: qgen: --parallel: 'many' is not allowed (expected auto, or a whole number from 1 to 1024)
exit: 2

$ qgen -m $MODEL -p x --parallel 2
stderr: qgen: --parallel: goes with --batch only
exit: 2

# What it takes, before
$ qgen plan -m $MODEL --parallel 16 --json --device cpu
json: stdout schemas/plan.schema.json
where: it["parallel"] == 16 and it["cache_tokens"] == 17 * it["context"]
where: it["memory"]["kv"] == it["cache_tokens"] * it["kv_bytes_per_token"]

$ qgen bench -m $MODEL -p 0 -n 8 -d 0 -r 1 --parallel 1,4 --output json
json: stdout schemas/bench.schema.json
where: [(test["name"], test["parallel"]) for test in it["tests"]] == [("tg8", 1), ("tg8 x 4", 4)]

# Values beyond the range of an F16 cache are an error of their line alone: here those of the token "Z", 469
$ cp -rL "$MODEL" wide && python3 - << 'END'
> import json, struct
> data = bytearray(open("wide/model.safetensors", "rb").read())
> begin = 8 + struct.unpack("<Q", data[:8])[0]
> header = json.loads(data[8:begin])
> rows = begin + header["model.embed_tokens.weight"]["data_offsets"][0]
> for token in range(512): struct.pack_into("<H", data, rows + token * 128, 0x3F80 if token == 469 else 0)
> struct.pack_into("<H", data, begin + header["model.layers.0.input_layernorm.weight"]["data_offsets"][0], 0x4E80)
> open("wide/model.safetensors", "wb").write(data)
> END

$ printf '{"prompt":"%s","max_tokens":3,"temperature":0,"logit_bias":{"469":-100}}\n' "Once" "The Z" "One day" > z.jsonl; for n in 1 3; do qgen -m wide --batch z.jsonl --parallel $n > z.$n; echo $?; done; grep -ho '"message":"[^"]*"' z.1 z.3; sed -i -E 's/"seconds":[0-9.]+/_/' z.1 z.3; grep -c '"text":' z.1 z.3
  1
  1
  "message":"line 2: keys or values of layer 0 are beyond the range of the f16 cache"
  "message":"line 2: keys or values of layer 0 are beyond the range of the f16 cache"
  z.1:2
  z.3:2
stderr:
  qgen: 1 of 3 lines failed
  hint: the first: line 2: keys or values of layer 0 are beyond the range of the f16 cache
  qgen: 1 of 3 lines failed
  hint: the first: line 2: keys or values of layer 0 are beyond the range of the f16 cache
