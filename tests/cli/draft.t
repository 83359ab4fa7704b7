# --draft mtp: the layer that some models have for it guesses tokens, which are run at once. The answer stays what it is.

$ python3 $ROOT/tests/cli/scripted_model.py --drafts counts "one " "two " "three " "four " "five " loop
$ python3 $ROOT/tests/cli/scripted_model.py --drafts ends "once " "<0xC3>" "<0xA9>" " and " "out"
$ python3 $ROOT/tests/cli/scripted_model.py plain "one " "two " loop

# Four of five guesses come true, in half of the steps or less
$ qgen -m counts -p "go" -n 100 --draft mtp --stats=json > answer
json: stderr schemas/stats.schema.json
where: it["output"]["tokens"] == 100 and it["stop"] == "max-tokens"
where: 50 <= it["output"]["accepted_tokens"] < it["output"]["drafted_tokens"] <= 100

$ qgen -m counts -p "go" -n 100 | cmp - answer

$ qgen -m counts -p "go" -n 100 --draft mtp --stats
  ...
stderr:
  ...
    drafts  [0-9]+ tokens, [0-9]+ accepted \([0-9]+%\) (re)

# Every length of an answer, and every context
$ for n in $(seq 1 40); do
>   for way in "-n $n" "-c $((n + 3)) -q"; do
>     qgen -m counts -p "go" $way > plain.txt; qgen -m counts -p "go" $way --draft mtp > drafted; cmp plain.txt drafted
>   done
> done

# Sampled with a seed: the same tokens; the engine whose scores do not depend on how many tokens run at once
$ for seed in $(seq 1 30); do
>   sampled() { qgen -m counts -p "go" -n 60 --device reference --temp 1 --logit-bias 354=4 --repeat-penalty 1.01 --seed $seed "$@"; }
>   sampled > plain.txt; sampled --draft mtp > drafted; cmp plain.txt drafted
> done

# Together with guesses from the text
$ qgen -m counts -p "go" -n 100 --draft mtp --prompt-lookup 8 | cmp - answer

# The end of the model inside a guess
$ qgen -m ends -p "go" --draft mtp --raw --stats=json
  once é and out (no-eol)
json: stderr schemas/stats.schema.json
where: it["stop"] == "end" and it["output"]["accepted_tokens"] > 0

# What the environment asks for can be taken back
$ QGEN_DRAFT=mtp qgen -m plain -p "go" -n 2 --draft off
  one two  (no-eol)

# Lines of a batch one at a time, and in the environment
$ for i in 1 2 3; do echo "{\"id\": $i, \"prompt\": \"go\", \"max_tokens\": 7}"; done > in.jsonl
$ QGEN_DRAFT=mtp qgen -m counts --batch in.jsonl --stats=json 2> report | grep -c '"text":"one two three four five one two '
  3
$ python3 -c "
> import json
> stats = json.load(open('report'))
> print(stats['parallel'], stats['accepted_tokens'] > 3)"
  1 True

$ qgen -m counts --batch in.jsonl --draft mtp --parallel 2
stderr:
  qgen: --parallel 2: no place for --draft
  hint: * (glob)
exit: 2

# What it takes is planned
$ for draft in "" "--draft mtp"; do qgen plan counts $draft --json; done | python3 -c "
> import json, sys
> without, with_drafts = (json.loads(line) for line in sys.stdin)
> for key in 'weights', 'kv': print(without['memory'][key] < with_drafts['memory'][key])"
  True
  True

$ qgen plan counts --draft mtp --parallel auto --json | grep -o '"parallel":1'
  "parallel":1

$ qgen plan counts --draft mtp --parallel 4
stderr:
  qgen: --parallel 4: no place for --draft
  hint: one line at a time may be guessed ahead
exit: 2

# Models without such a layer, and files that left it out
$ qgen -m plain -p go --draft mtp
stderr:
  qgen: plain: no layer that drafts tokens is known of a llama model
  hint: --draft off runs it without
exit: 2

$ qgen plan $ROOT/tests/golden/qwen3_next-bf16 --draft mtp
stderr:
  qgen: qwen3_next-bf16: no layer that drafts tokens (no tensor mtp.fc.weight)
  hint: --draft off runs it without
exit: 2

$ sed -i 's/"mtp_num_hidden_layers": 1/"mtp_num_hidden_layers": 0/' ends/config.json; qgen -m ends -p go --draft mtp
stderr:
  qgen: ends: no layer that drafts tokens (config.json says mtp_num_hidden_layers: 0)
  hint: --draft off runs it without
exit: 2

# With such a layer, too, a quantization parameter that nothing understands is an error
$ python3 -c "
> import json, struct
> data = open('counts/model.safetensors', 'rb').read()
> length = struct.unpack('<Q', data[:8])[0]
> header, body = json.loads(data[8 : 8 + length]), data[8 + length :]
> header['model.embed_tokens.weight_zero_point'] = {'dtype': 'F32', 'shape': [1], 'data_offsets': [len(body), len(body) + 4]}
> text = json.dumps(header).encode()
> open('counts/model.safetensors', 'wb').write(struct.pack('<Q', len(text)) + text + body + bytes(4))"
$ qgen plan counts --draft mtp
stderr:
  qgen: counts/model.safetensors: tensor model.embed_tokens.weight_zero_point: a quantization parameter that nothing here understands
  hint: * (glob)
exit: 3

$ qgen -m plain -p go --draft eagle
stderr:
  qgen: --draft: 'eagle' is not allowed (expected mtp, off)
  hint: `qgen --help` lists the options
exit: 2
