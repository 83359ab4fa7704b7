# `qgen --batch`: JSON lines in, JSON lines out in their order, the model loaded once; a bad line gets an error object, and
# then the exit code is 1.

file: lines.jsonl
  {"prompt": "Once upon a"}
  
  {"id": "second", "prompt": "Once upon a time", "max_tokens": 8}
  {"custom_id": 3, "prompt": "Once upon a", "max_tokens": 1}

# Prompts in every form; what lines say wins over options
$ qgen -m $MODEL --batch lines.jsonl -n 3
jsonl: stdout schemas/batch.schema.json
where: [(a["line"], a["id"], a["text"]) for a in it] == [(1, None, " time, there"), (3, "second", ", there was a little girl"), (4, 3, " time")]
where: all(a["stop"] == "max-tokens" for a in it)

# From standard input
$ qgen -m $MODEL --batch - -n 3 < lines.jsonl | grep -c '"text":'
  3

# Each answer is the one that a run of its own would give
$ printf '{"prompt":"Tom had a"}\n{"prompt":"One day","temperature":1,"seed":3}\n{"prompt":"The cat","temperature":1,"seed":3}\n' > three.jsonl

$ qgen -m $MODEL --batch three.jsonl -n 20 > together; (qgen -m $MODEL -p "Tom had a" -n 20; echo; qgen -m $MODEL -p "One day" --temp 1 --seed 3 -n 20; echo; qgen -m $MODEL -p "The cat" --temp 1 --seed 3 -n 20; echo) > alone
jsonl: together schemas/batch.schema.json
where: "\n".join(a["text"] for a in it) + "\n" == open(folder / "alone").read()

# Two runs give the same but for times and random seeds
$ qgen -m $MODEL --batch three.jsonl -n 20 --seed 1 | sed -E 's/"seconds":[0-9.e-]+//'
  ...
runs: 2

# One write for each answer, so that a reader can go on at once
$ qgen -m $MODEL --batch lines.jsonl -n 3
  ...
where: len(writes) == 3 and all(w.endswith(b"}\n") for w in writes)

# An answer comes before the next line is written
$ qgen -m $MODEL --batch - -n 3
  ...
send: {"prompt": "Once upon a"}\n
expect: " time, there"
send: {"prompt": "Once upon a time"}\n
expect: ", there was"

# Bad lines: no JSON, nothing to do, an unknown member, a wrong type, no template, too long
$ printf '%s\n' '{"prompt": "Once upon a"' '{"id": 2}' '{"prompt": "x", "promt": 1, "id": 3}' '{"prompt": 5, "id": 4}' '{"id": 5, "messages": [{"role": "user", "content": "Hi"}]}' "{\"id\": 6, \"prompt\": \"$(printf 'a %.0s' {1..600})\"}" '[]' '{"prompt": "Once upon a", "id": 8}' > bad.jsonl

$ qgen -m $MODEL --batch bad.jsonl -n 3
exit: 1
jsonl: stdout schemas/batch.schema.json
stderr:
  qgen: 7 of 8 lines failed
  hint: the first: line 1: not valid JSON * (glob)
where: all(a["error"]["message"].startswith(f"line {a['line']}: ") for a in it[:7]) and "line 3: promt: unknown member" == it[2]["error"]["message"]
where: it[2]["error"]["hint"] == "did you mean prompt?" and it[5]["error"]["message"].startswith("line 6: prompt: ")
where: [a["id"] for a in it] == [None, 2, 3, 4, 5, 6, None, 8]
where: [a.get("error", {}).get("code") for a in it] == [2, 2, 2, 2, 2, 2, 2, None]
where: it[7]["text"] == " time, there"
where: "expected at most 512 tokens, found" in it[5]["error"]["message"]

# OpenAI's members in our form, those that change nothing too; null is as good as nothing (batch_openai.t has their form)
$ printf '%s\n' '{"custom_id": "a", "model": "m", "prompt": "Once upon a", "logprobs": true, "top_logprobs": 2, "n": 1, "stream": false, "user": "u", "metadata": {}, "temperature": null}' '{"prompt": "Once upon a", "logit_bias": {"403": 100}, "max_tokens": 2}' '{"prompt": "x", "n": 2}' '{"prompt": "x", "stream": true}' '{"prompt": "x", "logit_bias": {"a": 1}}' '{"messages": []}' '{"prompt": "x", "logit_bias": {"512": 1}}' > openai.jsonl

$ qgen -m $MODEL --batch openai.jsonl -n 3
exit: 1
stderr:
  qgen: 5 of 7 lines failed
  ...
jsonl: stdout schemas/batch.schema.json
where: it[0]["id"] == "a" and it[0]["text"] == " time, there" and len(it[0]["logprobs"]) == 3
where: it[1]["text"] == " Once Once" and it[1]["output_tokens"] == 2
where: [a.get("error", {}).get("code") for a in it] == [None, None, 2, 2, 2, 2, 2]

# Numbers out of range say the range
$ printf '{"prompt": "x", "%s": %s}\n' typical_p 0 repeat_penalty 0 top_p 1.5 n 2 max_tokens -1 | qgen -m $MODEL --batch - | python3 -c 'import json, sys; [print(json.loads(line)["error"]["message"]) for line in sys.stdin]'
  line 1: typical_p: 0 is out of range (expected above 0 to 1)
  line 2: repeat_penalty: 0 is out of range (expected above 0 to 1000000000)
  line 3: top_p: 1.5 is out of range (expected 0 to 1)
  line 4: n: 2 is not supported (expected 1)
  line 5: max_tokens: -1 is out of range (expected 0 to 2147483648)
exit: 1
stderr:
  qgen: 5 of 5 lines failed
  ...

# Stop strings, logprobs
$ qgen -m $MODEL --batch - -n 60 --logprobs 2 <<< '{"prompt": "Once upon a time", "stop": ["zzz", " little"]}'
jsonl: stdout schemas/batch.schema.json
where: it[0]["text"] == ", there was a" and it[0]["stop"] == "stop-string" and it[0]["stop_string"] == " little"
where: len(it[0]["logprobs"]) >= 5

# Options that a whole batch has
$ qgen -m $MODEL --batch - --stop " little" <<< '{"prompt": "Once upon a time"}'
jsonl: stdout schemas/batch.schema.json
where: it[0]["text"] == ", there was a"

# Conversations, and reasoning beside the answer
$ python3 $ROOT/tests/cli/scripted_model.py thinks "<think>" "hm" "</think>" "Good " "night." && printf '{%% for m in messages %%}[{{ m.role }}] {{ m.content }}{%% endfor %%}:' > thinks/chat_template.jinja

$ qgen -m thinks --batch - <<< '{"messages": [{"role": "system", "content": "Be"}, {"role": "user", "content": "Hi"}]}'
jsonl: stdout schemas/batch.schema.json
where: it[0]["text"] == "Good night." and it[0]["reasoning"] == "hm" and it[0]["stop"] == "end"
where: it[0]["prompt_tokens"] == len("[system] Be[user] Hi:")

# Dropped with --reasoning hide
$ qgen -m thinks --batch - --reasoning hide <<< '{"prompt": "Hi"}'
jsonl: stdout schemas/batch.schema.json
where: it[0]["text"] == "Good night." and "reasoning" not in it[0]

# The last line of --done: half a one is taken off and answered again, a whole one without its end stays; others stay too
$ printf '%s\n' '{"prompt": "a", "max_tokens": 1}' '{"prompt": "b", "max_tokens": 1}' > two.jsonl; qgen -m $MODEL --batch two.jsonl > whole.jsonl; (head -1 whole.jsonl; printf '{"schema":1,"line":2,"te') > half.jsonl; printf %s "$(cat whole.jsonl)" > endless.jsonl; printf '{"a":1}' > other.jsonl; printf 'x' > none.jsonl; for file in half endless other none; do qgen -m $MODEL --batch two.jsonl --done $file.jsonl >> $file.jsonl; echo $file $? $(grep -c '"text"' $file.jsonl) $(wc -l < $file.jsonl); done
  half 0 2 2
  endless 0 2 1
  other 0 2 3
  none 2 0 0
stderr:
  qgen: --done none.jsonl: line 1: not valid JSON (The JSON document has an improper structure: missing or superfluous commas, braces, missing keys, etc.)

# Its own input is no output, nor is an answered file that is not appended to
$ cp two.jsonl in.jsonl; qgen -m $MODEL --batch in.jsonl >> in.jsonl; echo $?; cp whole.jsonl done.jsonl; qgen -m $MODEL --batch two.jsonl --done done.jsonl 1<> done.jsonl; echo $?; cmp in.jsonl two.jsonl; cmp done.jsonl whole.jsonl
  2
  2
stderr:
  qgen: --batch in.jsonl: standard output is the same file
  hint: > another file
  qgen: --done done.jsonl: standard output is the same file and does not append to it
  hint: >> done.jsonl does, and the first run may have it so too

# Nothing to do is done
$ qgen -m $MODEL --batch - < /dev/null

# A report of it all
$ qgen -m $MODEL --batch lines.jsonl -n 3 --stats=json > /dev/null
json: stderr schemas/batch-stats.schema.json
where: it["lines"] == 3 and it["failed"] == 0 and it["output_tokens"] == 12

# In a file
$ qgen -m $MODEL --batch bad.jsonl -n 3 --stats-file stats.json > /dev/null
exit: 1
stderr:
  qgen: 7 of 8 lines failed
  ...
json: stats.json schemas/batch-stats.schema.json
where: it["lines"] == 8 and it["failed"] == 7

# As text
$ qgen -m $MODEL --batch lines.jsonl -n 3 --stats > /dev/null
stderr:
  stories260K-FP8 · cpu * (glob)
    3 lines, 0 failed · * tokens in, * tok/s · 12 out, * tok/s (glob)

# On two terminals in one line, and only there
$ qgen -m $MODEL --batch lines.jsonl -n 3 --color never
  ...
stderr: 3 lines, 0 failed · * tokens in, * tok/s · 12 out, * tok/s (glob)
tty: out err
where: len(err.rstrip("\n")) < 80

$ qgen -m $MODEL --batch lines.jsonl -n 3
  ...
tty: err

# What takes long counts its lines
$ python3 $ROOT/tests/cli/scripted_model.py slow "a" "b" loop; printf '{"prompt":"go","max_tokens":400}\n%.0s' {1..8} > slow.jsonl; qgen -m slow --batch slow.jsonl --device reference > /dev/null
stderr: ...
tty: err
where: re.search("[0-9] of 8 lines · [0-9]+ tokens written", err) and err.endswith("\r\x1b[K")

# A byte order mark and line ends of another system
$ printf '\xef\xbb\xbf{"prompt": "Once upon a"}\r\n{"prompt": "Once upon a"}\r\n' | qgen -m $MODEL --batch - -n 3 | grep -c '"text":" time, there"'
  2

# A file that is missing
$ qgen -m $MODEL --batch nowhere.jsonl
stderr:
  qgen: --batch nowhere.jsonl: * (glob)
  ...
exit: 2

# Together with a prompt
$ qgen -m $MODEL --batch lines.jsonl -p x
stderr:
  qgen: --batch: no place for --prompt or --file
  hint: * (glob)
exit: 2

# Ctrl-C stops it in an answer, which is told
$ python3 $ROOT/tests/cli/scripted_model.py endless "a" "b" loop; printf '{"prompt":"go"}\n%.0s' {1..2000} > long.jsonl

$ qgen -m endless --batch long.jsonl
  ...
wait: 300 ms
signal: INT
exit: 130

# A closed pipe is silent
$ qgen -m $MODEL --batch <(yes '{"prompt": "Once"}') -n 1 | head -c 1
  { (no-eol)
exit: 141

# Noise from a vocabulary of bytes is valid JSON
$ printf '{"prompt":"Once","seed":%d}\n' {1..20} | qgen -m $MODEL --batch - --temp 9 -n 50
jsonl: stdout schemas/batch.schema.json
where: len(it) == 20

# A folder is no file of lines
$ qgen -m $MODEL --batch models
stderr:
  qgen: --batch models: is a folder (expected a file of lines)
exit: 2

# Nor is it through standard input
$ qgen -m $MODEL --batch - < models
stderr:
  qgen: --batch -: cannot read: Is a directory
exit: 1

# A byte that is no UTF-8 is the line's error, or replaced
$ printf '{"prompt":"Once\xff","max_tokens":1}\n' > latin.jsonl; qgen -m $MODEL --batch latin.jsonl 2> /dev/null | grep -o 'line 1: not UTF-8 (found the byte 0xFF at offset 15, line 1)'; qgen -m $MODEL --batch latin.jsonl --invalid-utf8 replace | grep -c '"text"'
  line 1: not UTF-8 (found the byte 0xFF at offset 15, line 1)
  1

# Options without effect, for all lines: one that has a temperature draws
$ echo '{"prompt":"Once upon a time"}' > one.jsonl; qgen -m $MODEL --batch nowhere --batch one.jsonl -n 1 --seed 3 | grep -c '"text"'
  1
stderr:
  qgen: warning: --batch: given 2 times, only the last one counts
  qgen: warning: --seed 3: no effect, the model answers greedily (--temp 0.7 draws)

$ { cat one.jsonl; echo '{"prompt":"Once","temperature":1}'; } | qgen -m $MODEL --batch - -n 1 --seed 3 | grep -c '"seed":3'
  2

# "think" where nothing listens, in lines
$ printf '%s\n' '{"prompt":"a","think":"on"}' '{"prompt":"b"}' '{"prompt":"c","think":false}' '{"prompt":"d","think":"auto"}' | qgen -m thinks --batch - -n 1 > /dev/null
stderr: qgen: warning: "think" in 2 lines: no effect, raw text, or a chat template that knows no enable_thinking
