# `--done FILE` leaves out the lines of a batch that an earlier run's output has answered.

file: in.jsonl
  {"id": "a", "prompt": "Once upon a"}
  {"id": "b", "prompt": 5}
  {"prompt": "Once upon a time"}
  {"id": "a", "prompt": "Tom had"}

# The first run: one line fails
$ qgen -m $MODEL --batch in.jsonl -n 3 > out.jsonl
stderr:
  qgen: 1 of 4 lines failed
  hint: the first: line 2: prompt: expected a string, found * (glob)
exit: 1

# With its output nothing but that line is left, by id and by number
$ qgen -m $MODEL --batch in.jsonl -n 3 --done out.jsonl
jsonl: stdout schemas/batch.schema.json
where: [(a["line"], a["id"]) for a in it] == [(2, "b")]
stderr:
  qgen: 1 of 1 lines failed
  ...
exit: 1

# A run that was cut off goes on where it was; the answers are those of one run
$ head -n 1 out.jsonl > part.jsonl; tail -n +3 out.jsonl | head -n 1 | head -c 30 >> part.jsonl; sed -i '2s/.*/{"id": "b", "prompt": "Lily"}/' in.jsonl; qgen -m $MODEL --batch in.jsonl -n 3 --done part.jsonl >> part.jsonl; wc -l < part.jsonl
  4
jsonl: part.jsonl schemas/batch.schema.json
where: sorted(a["line"] for a in it) == [1, 2, 3, 4]

# Each answer stands for one line of its id
$ head -n 1 out.jsonl > part.jsonl; qgen -m $MODEL --batch in.jsonl -n 3 --done part.jsonl
jsonl: stdout schemas/batch.schema.json
where: [a["line"] for a in it] == [2, 3, 4]

# However an id is spelled
file: spelled.jsonl
  {"id": "\u00e9", "prompt": "Once"}
  {"id": "a\/b\u0041", "prompt": "Once"}
  {"id": 12345678901234567890123, "prompt": "Once"}
  {"id": 1e3, "prompt": "Once"}
  {"id": [1, "\ud83d\ude00"], "prompt": "Once"}
$ qgen -m $MODEL --batch spelled.jsonl -n 1 > spelled.out; qgen -m $MODEL --batch spelled.jsonl -n 1 --done spelled.out; wc -l < spelled.out
  5

# OpenAI's form too: only what has a good status counts
$ printf '{"custom_id": "%s", "url": "/v1/completions", "body": {"prompt": "Once", "max_tokens": 1}}\n' x y > openai.jsonl; qgen -m $MODEL --batch openai.jsonl | sed '2s/200/500/' > done.jsonl; qgen -m $MODEL --batch openai.jsonl --done done.jsonl | grep -o '"custom_id":"[a-z]*"'
  "custom_id":"y"

# The report counts them
$ qgen -m $MODEL --batch openai.jsonl --done done.jsonl --stats=json > /dev/null
json: stderr schemas/batch-stats.schema.json
where: it["lines"] == 1 and it["skipped"] == 1

# A file that is not there yet
$ qgen -m $MODEL --batch openai.jsonl --done nowhere.jsonl | wc -l
  2
stderr: qgen: warning: --done nowhere.jsonl: no such file, no line is left out

# One that is something else
$ qgen -m $MODEL --batch openai.jsonl --done $MODEL/README.md
stderr: qgen: --done models/stories260K-FP8/README.md: line *: not valid JSON * (glob)
exit: 2

# It goes with --batch
$ qgen -m $MODEL -p x --done out.jsonl
stderr:
  qgen: --done: goes with --batch only
  ...
exit: 2
