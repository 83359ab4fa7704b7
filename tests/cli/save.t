# `--save` and `--resume` on the main job: one answer goes on with another.

file: template
  {% for m in messages %}{{ m.content + eos_token }}{% endfor %}
$ python3 $ROOT/tests/cli/scripted_model.py two "Hello " "there." && cp template two/chat_template.jinja

# What was said is written
$ qgen -m two -s Be -p Hi --save talk.json
  Hello there. (no-eol)
json: talk.json schemas/chat.schema.json
where: it == {"schema": 1, "model": "two", "system": "Be", "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello there."}]}

# And gone on with, in place
$ qgen -m two -p "And?" --resume talk.json --save talk.json --stats=json
  Hello there. (no-eol)
json: stderr schemas/stats.schema.json
where: it["prompt"]["tokens"] == len("Be|Hi|Hello there.|And?|")

$ python3 -c 'import json; print([m["content"] for m in json.load(open("talk.json"))["messages"]])'; stat -c %a talk.json
  ['Hi', 'Hello there.', 'And?', 'Hello there.']
  600

# A list of messages that ends with a question needs no further prompt, one that ends with an answer does
$ printf '[{"role":"user","content":"Hi"}]' > asked.json; qgen -m two --resume asked.json --save answered.json --stats=json < /dev/null
  Hello there. (no-eol)
json: stderr schemas/stats.schema.json
where: it["prompt"]["tokens"] == len("Hi|")

$ python3 -c 'import json; print([m["content"] for m in json.load(open("answered.json"))["messages"]])'; qgen -m two --resume answered.json < /dev/null
  ['Hi', 'Hello there.']
stderr:
  qgen: no prompt
  hint: --prompt TEXT, --file FILE, or text on standard input; `qgen --help` has examples
exit: 2

# A loop keeps its file
$ printf 'asked.json\nasked.json\n' > list; while read file; do qgen -m two --resume $file; done < list
  Hello there.Hello there. (no-eol)
stderr: ...
where: err.count("so it is left alone") == 1

# Nothing from a pipe or a file is no prompt, not the last question
$ printf '' | qgen -m two --resume asked.json
stderr:
  qgen: no prompt
  hint: --prompt TEXT, --file FILE, or text on standard input; `qgen --help` has examples
exit: 2

$ : > empty; qgen -m two --resume asked.json -f empty < /dev/null
stderr:
  qgen: no prompt
  hint: --prompt TEXT, --file FILE, or text on standard input; `qgen --help` has examples
exit: 2

# A slip in a role is not written into the prompt
$ printf '[{"role":"usr","content":"Hi"}]' > slip.json; qgen -m two --resume slip.json -p x
stderr:
  qgen: slip.json: [0].role: 'usr' is no role
  hint: did you mean user?
exit: 2

$ printf '[{"role":"User","content":"Hi"}]' | qgen tokens -m two --messages - --render
stderr:
  qgen: standard input: [0].role: 'User' is no role
  hint: did you mean user?
exit: 2

# Templates have further roles
$ for role in observation tools user2; do printf '[{"role":"%s","content":"Hi"}]' $role | qgen tokens -m two --messages - --render; done
  Hi</s>Hi</s>Hi</s> (no-eol)

# JSON that is none: where
$ printf '[\n {"role":"user","content":"a"},\n {"role":"user" "content":"b"}]' > slip.json; qgen -m two --resume slip.json -p x
stderr: qgen: slip.json: not valid JSON at line 3, byte 17 (*) (glob)
exit: 2

# `qgen chat` and `qgen tokens` read it
$ printf '/undo\n/undo\n/undo\n' | qgen chat -m two --resume talk.json
stderr: qgen: /undo: there is no question yet
exit: 2

$ qgen tokens -m two --messages talk.json --render; printf '\n'; qgen tokens -m two --messages - --render < talk.json
  Be</s>Hi</s>Hello there.</s>And?</s>Hello there.</s>
  Be</s>Hi</s>Hello there.</s>And?</s>Hello there.</s> (no-eol)

# A byte order mark in front does no harm
$ printf '\xef\xbb\xbf' | cat - talk.json > marked.json; qgen tokens -m two --messages marked.json --render; qgen -m two --resume marked.json -p x -n 1
  Be</s>Hi</s>Hello there.</s>And?</s>Hello there.</s>Hello  (no-eol)

# Thinking is kept apart
$ python3 $ROOT/tests/cli/scripted_model.py thinks "<think>" "hm" "</think>" "yes" && cp template thinks/; cp template thinks/chat_template.jinja; qgen -m thinks -p Hi --save thought.json; qgen -m thinks -p Hi --reasoning show --save shown.json > /dev/null; cmp thought.json shown.json
  yes (no-eol)
json: thought.json schemas/chat.schema.json
where: it["messages"][1] == {"role": "assistant", "content": "yes", "reasoning_content": "hm"}

# What is cut short is kept as far as it came
$ qgen -m two -p Hi -n 1 --save short.json
  Hello  (no-eol)
json: short.json schemas/chat.schema.json
where: it["messages"][1]["content"] == "Hello "

# Before any work: a file that cannot be written or read, a model without a template
$ qgen -m two -p Hi --save nowhere/talk.json
stderr: qgen: nowhere/talk.json: cannot write: No such file or directory
exit: 1

$ qgen -m two -p Hi --save -
stderr:
  qgen: --save -: standard output is for text
  hint: a file; ./- if it is called so
exit: 2

$ qgen -m two -p Hi --resume nowhere.json
stderr: qgen: nowhere.json: * (glob)
exit: 2

$ for option in --save --resume; do qgen -m $MODEL -p Hi $option talk.json; qgen -m two --raw -p Hi $option talk.json; done 2>&1 | grep -v hint
  qgen: --save: the model has no chat template
  qgen: --save: --raw takes the prompt as it is
  qgen: --resume: the model has no chat template
  qgen: --resume: --raw takes the prompt as it is
exit: 2

$ qgen -m two --batch talk.json --save x.json
stderr:
  qgen: --batch: no place for --resume or --save
  ...
exit: 2

# A file that is there is replaced where it holds a conversation, or nothing
$ printf '{"model_type": "llama"}' > config.json; qgen -m two -p Hi --save config.json; cat config.json
  {"model_type": "llama"} (no-eol)
stderr:
  qgen: config.json: it holds something else than a conversation
  hint: a new file, or one with a conversation
$ printf '[{"role": "user", "content": "Hi"}]' > list.json; : > empty.json; for file in list.json empty.json; do qgen -m two -p Hi --save $file > answer && grep -c schema $file; done
  1
  1
