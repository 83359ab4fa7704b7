# An answer that is cut short exits with 6 and says why: the context ended it, or all of its tokens were thinking.

$ python3 $ROOT/tests/cli/scripted_model.py thinks "<think>" "It is " "late." "</think>" "Good " "night." && printf '{%% for m in messages %%}{{ m.content }}{%% endfor %%}:' > thinks/chat_template.jinja
$ python3 $ROOT/tests/cli/scripted_model.py ponders "<think>" "Hm" && cp thinks/chat_template.jinja ponders/
$ python3 $ROOT/tests/cli/scripted_model.py endless "a" "b" loop && cp thinks/chat_template.jinja endless/

# The context
$ qgen -m $MODEL -p "Once upon a time" -c 8 --temp 0
  , there was a (no-eol)
stderr: qgen: warning: stories260K-FP8: the context of 8 tokens is full, the answer is not complete
exit: 6

# An answer that is as long as it was wanted, though the context is full
$ qgen -m $MODEL -p "Once upon a time" -c 8 -n 4 --temp 0
  , there was a (no-eol)

# With -q the exit code alone says so
$ qgen -m $MODEL -p "Once upon a time" -c 8 --temp 0 -q
  , there was a (no-eol)
exit: 6

# --max-tokens with a text is what was asked for
$ qgen -m $MODEL -p "Once upon a time" -n 3
  , there was (no-eol)

# All thinking, by --max-tokens
$ qgen -m thinks -p Hi -n 3
stderr: qgen: warning: thinks: no answer, all 3 tokens were thinking (more --max-tokens, or --think off)
exit: 6

# By the model's own end
$ qgen -m ponders -p Hi
stderr: qgen: warning: ponders: no answer, all 2 tokens were thinking (more --max-tokens, or --think off)
exit: 6

# On a terminal, where the thinking is seen
$ qgen -m ponders -p Hi --color never
  Hm
stderr: ...
tty: out err
exit: 6
where: "no answer" in err

# An answer after the thinking is one
$ qgen -m thinks -p Hi
  Good night. (no-eol)

# --reasoning show makes all of it text
$ qgen -m ponders -p Hi --reasoning show
  <think>Hm (no-eol)

# No tokens that were asked for are none that are missing
$ qgen -m thinks -p Hi -n 0

# Reports have the reason
$ qgen -m thinks -p Hi -n 3 --stats=json
json: stderr schemas/stats.schema.json
where: it["cut_short"] == "thinking" and it["stop"] == "max-tokens" and "no answer" in it["warnings"][0]
exit: 6

$ qgen -m $MODEL -p "Once upon a time" -c 8 --temp 0 --stats=json
  ...
json: stderr schemas/stats.schema.json
where: it["cut_short"] == "context" and it["stop"] == "context"
exit: 6

$ qgen -m thinks -p Hi --stats=json
  ...
json: stderr schemas/stats.schema.json
where: it["cut_short"] is None and it["warnings"] == []

# A batch says it in its lines, and how many they are
$ printf '{"prompt":"Hi","max_tokens":3}\n{"prompt":"Hi"}\n' | qgen -m thinks --batch -
jsonl: stdout schemas/batch.schema.json
where: [a["cut_short"] for a in it] == ["thinking", None]
stderr: qgen: warning: 1 of 2 answers are cut short, their lines say how ("cut_short", "finish_reason")

# A scripted conversation too
$ printf 'Hi\n' | qgen chat -m endless -c 5
  ab* (glob)
stderr: qgen: warning: endless: the context of 5 tokens is full, the answer is not complete
exit: 6

# Ctrl-C wins
$ qgen -m endless -p Hi -c 100000 -n 90000 -q
  ...
expect: ab
signal: INT
exit: 130

# Help and manual have the code
$ qgen --help | grep -A1 '^  6 '; qgen man | grep -A1 '^.B 6'
    6                         cut short: the context ended the answer, or all of
                              it was thinking
  .B 6
  cut short: the context ended the answer, or all of it was thinking
