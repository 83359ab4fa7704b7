# Reasoning: --think sets enable_thinking (chat_template.t); --reasoning auto dims it on a terminal and drops it from a pipe,
# with a count in the report.

$ python3 $ROOT/tests/cli/scripted_model.py thinks "<think>" "It is " "late." "</th" "ink>" "<0x0A>" "Good " "night." && printf '{%% for m in messages %%}{{ m.content }}{%% endfor %%}:' > thinks/chat_template.jinja

# Dropped from a pipe
$ qgen -m thinks -p Hi
  Good night. (no-eol)

# With a count in the report
$ qgen -m thinks -p Hi --stats
  Good night. (no-eol)
stderr:
  ...
    output  8 tokens \([345] thinking, not shown\), .* (re)

# And in its JSON
$ qgen -m thinks -p Hi --stats=json
  Good night. (no-eol)
json: stderr schemas/stats.schema.json
where: it["output"]["tokens"] == 8 and 3 <= it["output"]["thinking_tokens"] <= 5

# Dimmed on a terminal, with a blank line before the answer
$ qgen -m thinks -p Hi
  \x1b[2mIt is \x1b[0m\x1b[2mlate.\x1b[0m (esc)
  
  Good night.
tty: out

# Not dimmed with NO_COLOR
$ NO_COLOR=1 qgen -m thinks -p Hi
  It is late.
  
  Good night.
tty: out

# An empty NO_COLOR is none
$ NO_COLOR= qgen -m thinks -p Hi
  \x1b[2mIt is \x1b[0m\x1b[2mlate.\x1b[0m (esc)
  
  Good night.
tty: out

# Nor with --color never
$ qgen -m thinks -p Hi --color never
  It is late.
  
  Good night.
tty: out

# --color always wins over NO_COLOR
$ NO_COLOR=1 qgen -m thinks -p Hi --color always
  \x1b[2mIt is \x1b[0m\x1b[2mlate.\x1b[0m (esc)
  
  Good night.
tty: out

# --reasoning hide drops it from a terminal too
$ qgen -m thinks -p Hi --reasoning hide
  Good night.
tty: out

# --reasoning show leaves all as the model wrote it
$ qgen -m thinks -p Hi --reasoning show
  <think>It is late.</think>
  Good night. (no-eol)

# --raw takes tags as text
$ qgen -m thinks -p Hi: --raw
  <think>It is late.</think>
  Good night. (no-eol)

# Thinking that was cut short is still no answer
$ qgen -m thinks -p Hi -n 2 --stats=json
json: stderr schemas/stats.schema.json
where: it["output"]["tokens"] == 2 and 1 <= it["output"]["thinking_tokens"] <= 2 and it["stop"] == "max-tokens"
exit: 6

# A model that ends in the middle of a tag wrote text
$ python3 $ROOT/tests/cli/scripted_model.py half "a" "<thi" && cp thinks/chat_template.jinja half/; qgen -m half -p Hi
  a<thi (no-eol)

$ mkdir open && cp $MODEL/* open/ && printf '{{ bos_token }}{%% for m in messages %%}{{ m.content }}{%% endfor %%}<think>' > open/chat_template.jinja

# A template that opens a block leaves everything inside it: nothing in a pipe
$ qgen -m open -p "Once upon a time" -n 20 --temp 0 --stats=json
json: stderr schemas/stats.schema.json
where: it["output"]["thinking_tokens"] == 20
exit: 6

# Nor with --reasoning hide
$ qgen -m open -p "Once upon a time" -n 20 --temp 0 --reasoning hide --stats=json
json: stderr schemas/stats.schema.json
where: it["output"]["thinking_tokens"] == 20
exit: 6

# --reasoning show shows it
$ qgen -m open -p "Once upon a time" -n 20 --temp 0 --reasoning show
  ...
where: len(out) > 20

# A closed block hides nothing
$ printf '{{ bos_token }}{%% for m in messages %%}{{ m.content }}{%% endfor %%}<think>x</think>' > open/chat_template.jinja; qgen -m open -p "Once upon a time" -n 20 --temp 0
  ...
where: len(out) > 20

# --think where nothing listens, --reasoning without a template: a word about it
$ qgen -m thinks -p Hi --think on
  Good night. (no-eol)
stderr: qgen: warning: --think on: no effect, the model's chat template knows no enable_thinking

$ qgen -m $MODEL -p "Once upon a time" --think off -n 1
  , (no-eol)
stderr: qgen: warning: --think off: no effect, the model has no chat template

$ qgen -m thinks -p Hi --raw --think on --reasoning hide -n 0
stderr:
  qgen: warning: --think on: no effect, --raw goes without the chat template
  qgen: warning: --reasoning hide: no effect, --raw goes without the chat template

# Not about the environment's, which are for many models
$ QGEN_THINK=off QGEN_REASONING=hide qgen -m $MODEL -p "Once upon a time" -n 1
  , (no-eol)

# Nor where a template listens
$ mkdir hears && cp thinks/* hears/ && printf '{%% if enable_thinking %%}{%% endif %%}{%% for m in messages %%}{{ m.content }}{%% endfor %%}:' > hears/chat_template.jinja; qgen -m hears -p Hi --think on
  Good night. (no-eol)
