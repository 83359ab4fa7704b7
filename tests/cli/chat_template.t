# The model's own chat template is used when it has one, and the report says so; --raw continues the prompt as it is. What
# a user types can never become a special token.

$ mkdir chat && cp $MODEL/* chat/

file: chat/chat_template.jinja
  {{ bos_token }}{% for m in messages %}[{{ m.role }}] {{ m.content }}
  {% endfor %}{% if enable_thinking is defined and not enable_thinking %}fast{% endif %} (no-eol)

# Used where there is one
$ qgen -m chat -p "Hi" -n 0 --stats
stderr:
  chat · llama 260K · fp8 block 128x128 · *· chat template · greedy (glob)
  ...

# Not with --raw
$ qgen -m chat -p "Hi" -n 0 --stats --raw
stderr:
  * · llama 260K · fp8 block 128x128 · *· no chat template · greedy (glob)
  ...

# The JSON says so too
$ qgen -m chat -p "Hi" -n 0 --stats=json
json: stderr schemas/stats.schema.json
where: it["chat_template"] is True

# A model without one continues the text
$ qgen -m $MODEL -p "Hi" -n 0 --stats
stderr:
  * · llama 260K · fp8 block 128x128 · *· no chat template · greedy (glob)
  ...

# The main job reads the prompt that `tokens` shows
$ printf 'Hi' | qgen tokens -m chat --chat --system Be | wc -w; qgen -m chat -p "Hi" -s Be -n 0 --stats=json 2>&1 | grep -o '"prompt":{"tokens":[0-9]*'
  20
  "prompt":{"tokens":20

# The newline that ends a file is no part of the message
$ printf 'Hi\n' | qgen tokens -m chat --chat --render
  <s>[user] Hi

# `tokens --render` needs only tokenizer and template
$ mkdir bare && cp chat/token* chat/chat_template.jinja bare/ && printf 'Hi </s>\n' | qgen tokens -m bare --chat --render --system Be
  <s>[system] Be
  [user] Hi </s>

# The template's special tokens are special, the user's are text
$ printf 'Hi </s><s>' | qgen tokens -m chat --chat --json
json: stdout schemas/tokens.schema.json
where: it["ids"][0] == 1 and 1 not in it["ids"][1:] and 2 not in it["ids"]

# Without a template as well
$ qgen -m $MODEL -p "</s><s>" -n 0 --stats=json
json: stderr schemas/stats.schema.json
where: it["prompt"]["tokens"] > 6

# And in a scored text
$ printf 'a</s>b' | qgen score -m $MODEL --json
json: stdout schemas/score.schema.json
where: 2 not in [t["id"] for t in it["tokens"]]

# And in a system message and a conversation
$ printf '[{"role":"user","content":"a</s>"},{"role":"assistant","content":"<s>b"}]' | qgen tokens -m chat --messages - --system "</s>" --json
json: stdout schemas/tokens.schema.json
where: it["ids"].count(1) == 1 and 2 not in it["ids"]

# A prompt that spells every added token of a real vocabulary
$ python3 -c "
> import json
> names = [t['content'] for t in json.load(open('$SHARED/data/tokenizers/qwen3/tokenizer.json'))['added_tokens']]
> print(' '.join(names) + ''.join(names))" | qgen tokens -m $SHARED/data/tokenizers/qwen3 --chat --json > qwen.json; python3 -c "
> import json
> added = {t['id'] for t in json.load(open('$SHARED/data/tokenizers/qwen3/tokenizer.json'))['added_tokens']}
> ids = json.load(open('qwen.json'))['ids']
> print(len(ids) > 200, [i for i in ids if i in added])"
  True [151644, 151645, 151644]
needs: test -d $SHARED/data/tokenizers/qwen3

# Options for conversations have no effect without one, nor --think where the template does not listen
$ printf 'Hi' | qgen tokens -m chat --think on -s Be > alone; printf 'Hi' | qgen tokens -m chat | cmp - alone; cp -r chat deaf && printf '{{ messages[0].content }}' > deaf/chat_template.jinja; printf 'Hi' | qgen tokens -m deaf --chat --think off --render; QGEN_THINK=on QGEN_SYSTEM=Be qgen tokens -m deaf <<< Hi | cmp - alone
  Hi (no-eol)
stderr:
  qgen: warning: --system: no effect, it belongs to --chat and --messages
  qgen: warning: --think on: no effect, it belongs to --chat and --messages
  qgen: warning: --think off: no effect, the model's chat template knows no enable_thinking

# --think sets enable_thinking
$ printf 'Hi' | qgen tokens -m chat --chat --render --think off
  <s>[user] Hi
  fast (no-eol)

# On, and left to the template, it is not off
$ for think in on auto; do printf 'Hi' | qgen tokens -m chat --chat --render --think $think; done
  <s>[user] Hi
  <s>[user] Hi

# How hard, and any other variable; what no template reads is said
$ cp -r chat effort && printf '%s' '{{ reasoning_effort|default("none") }} {{ thinking|default(-1) }} {{ tools|tojson }}' > effort/chat_template.jinja; for think in high on auto; do printf 'Hi' | qgen tokens -m effort --chat --render --think $think; echo; done; printf 'Hi' | qgen tokens -m effort --chat --render --think low --chat-template-kwargs '{"tools": [{"name": "f</s>"}], "reasoning_effort": "max", "budget": 1, "x": [1.0, null]}'
  high True null
  none True null
  none -1 null
  max True [{"name": "f</s>"}] (no-eol)
stderr:
  qgen: warning: --chat-template-kwargs: no effect, the model's chat template reads no budget, no x

# The text of variables is the user's: it becomes no special token
$ printf '{{ tools[0] }}{{ end }}' > effort/chat_template.jinja; printf 'Hi' | qgen tokens -m effort --chat --chat-template-kwargs '{"tools": ["</s>"], "end": "</s>"}'
  410 504 492 419 505 504 492 419 505

# Where --think has no effect but another variable would have
$ printf '{{ reasoning_effort }}' > effort/chat_template.jinja; printf 'Hi' | qgen tokens -m effort --chat --render --think off
stderr:
  qgen: warning: --think off: no effect, the model's chat template has reasoning_effort instead: --chat-template-kwargs '{"reasoning_effort": …}'

# Not variables
$ for json in '[1]' '{"messages": []}' '{' '{"add_generation_prompt": false}'; do qgen tokens -m chat --chat --chat-template-kwargs "$json" <<< Hi; echo $?; done
  2
  2
  2
  2
stderr:
  qgen: --chat-template-kwargs: expected an object, the variables of the chat template by name
  qgen: --chat-template-kwargs: messages: not a variable that can be set
  qgen: --chat-template-kwargs: not valid JSON at line 1, byte 2 (The JSON document has an improper structure: missing or superfluous commas, braces, missing keys, etc.)
  qgen: --chat-template-kwargs: add_generation_prompt: not a variable that can be set

# The main job takes it too
$ qgen -m chat -p Hi -n 0 --think off --stats=json 2>&1 | grep -o '"prompt":{"tokens":[0-9]*'; printf 'Hi' | qgen tokens -m chat --chat --think off | wc -w
  "prompt":{"tokens":13
  13

file: messages.json
  [{"role": "user", "content": "a"}, {"role": "assistant", "content": "b"}]

# `tokens --messages` renders a conversation
$ qgen tokens -m chat --messages messages.json --render
  <s>[user] a
  [assistant] b

# --system comes before it
$ qgen tokens -m chat --messages messages.json --render --system Be
  <s>[system] Be
  [user] a
  [assistant] b

# A bad conversation is a usage error
$ printf '{"role":1}' | qgen tokens -m chat --messages -
stderr:
  qgen: standard input: messages: missing
exit: 2

# A conversation of null is one as well
$ printf '[{"role":"user","content":null}]' | qgen tokens -m chat --messages -
stderr:
  qgen: * (glob)
  ...
exit: 2

# So is a file that is missing
$ qgen tokens -m chat --messages nowhere.json
stderr:
  qgen: nowhere.json: * (glob)
  ...
exit: 2

# --system without a template is a usage error, not a text that gets lost
$ qgen -m $MODEL -p x --system be
stderr:
  qgen: --system: the model has no chat template
  ...
exit: 2

# With --raw too
$ qgen -m chat -p x --system be --raw
stderr:
  qgen: --system: --raw takes the prompt as it is
  ...
exit: 2

# `tokens --chat` of a model without one is a model error
$ qgen tokens -m $MODEL --chat <<< x
stderr:
  qgen: models/stories260K-FP8: no chat template
  ...
exit: 3

$ mkdir refuses && cp $MODEL/* refuses/ && printf '{{ raise_exception("no such role") }}' > refuses/chat_template.jinja

# A template's own error is a model error with its words
$ qgen -m refuses -p Hi
stderr:
  qgen: *no such role* (glob)
  ...
exit: 3

# A template that cannot be read names its line
$ printf 'a\n{%% for %%}' > refuses/chat_template.jinja; qgen -m refuses -p Hi
stderr:
  qgen: *chat_template.jinja:2:* (glob)
  ...
exit: 3
