# `--json` on the main job: one object on standard output with text, reasoning, stop reason, usage and timings.

$ python3 $ROOT/tests/cli/scripted_model.py thinks "<think>" "hm" "</think>" "Good " "night." && printf '{%% for m in messages %%}{{ m.content }}{%% endfor %%}:' > thinks/chat_template.jinja

$ qgen -m $MODEL -p "Once upon a time" -n 5 --json
json: stdout schemas/answer.schema.json
where: it["text"] == ", there was a little" and it["reasoning"] is None and it["stop"] == "max-tokens"
where: it["usage"] == {"prompt_tokens": 5, "output_tokens": 5, "thinking_tokens": 0}
where: it["timings"]["tokens_per_second"] > 0 and it["timings"]["first_token_seconds"] > 0
where: it["model"] == "stories260K-FP8" and "logprobs" not in it

# Thinking comes apart
$ qgen -m thinks -p Hi --json
json: stdout schemas/answer.schema.json
where: it["text"] == "Good night." and it["reasoning"] == "hm" and it["stop"] == "end" and it["usage"]["thinking_tokens"] > 0

$ qgen -m thinks -p Hi --json --reasoning hide
json: stdout schemas/answer.schema.json
where: it["text"] == "Good night." and it["reasoning"] is None

# On a terminal too, in one piece
$ qgen -m thinks -p Hi --json -q
json: stdout schemas/answer.schema.json
where: len(writes) == 1
tty: out err

# --logprobs, --stop
$ qgen -m $MODEL -p "Once upon a time" --stop " little" --json --logprobs 2
json: stdout schemas/answer.schema.json
where: it["text"] == ", there was a" and it["stop"] == "stop-string" and it["stop_string"] == " little"
where: len(it["logprobs"][0]["top"]) == 2

# Cut short
$ qgen -m $MODEL -p "Once upon a time" -c 8 --json
json: stdout schemas/answer.schema.json
where: it["cut_short"] == "context" and it["stop"] == "context" and len(it["warnings"]) == 1
stderr: qgen: warning: * (glob)
exit: 6

# The report goes where it always goes
$ qgen -m $MODEL -p "Once upon a time" -n 1 --json --stats > /dev/null
stderr:
  stories260K-FP8 · llama 260K · * (glob)
  ...

# An error leaves nothing
$ qgen -m $MODEL -p "Once upon a time" -c 2 --json
stderr: ...
exit: 2
