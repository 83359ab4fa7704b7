# qgen chat: a conversation, scripted through a pipe or typed at a terminal. Answers go to standard output and nothing else.

# A model without a chat template
$ qgen chat -m $MODEL
stderr:
  qgen: stories260K-FP8: no chat template
  hint: `qgen -m * -p TEXT --raw` continues a text (glob)
exit: 3

$ mkdir chat && cp $MODEL/* chat/
file: chat/chat_template.jinja
  {% for m in messages %}{{ bos_token + m.role }}
  {{ m.content + eos_token }}
  {% endfor %}{% if add_generation_prompt %}{{ bos_token }}assistant
  {% endif %}
file: template
  {% for m in messages %}{{ m.content + eos_token }}{% endfor %}
$ python3 $ROOT/tests/cli/scripted_model.py two "Hello " "there." && cp template two/chat_template.jinja
$ python3 $ROOT/tests/cli/scripted_model.py endless $(printf '%01000d_a %01000d_b' 0 0) loop && cp template endless/chat_template.jinja

# Through a pipe every line is a message, and every answer ends its line
$ qgen chat -m two
  Hello there.
  Hello there.
stdin:
  Hi

  How are you?

# A report for each turn, of which each computes only what is new: twenty turns compute every token once
$ for i in $(seq 20); do echo "What is in box $i? </s>"; done | qgen chat -m chat -c 2048 -n 9 --temp 1 --seed 3 --stats=json > answers; test "$(wc -l < answers)" -ge 20 && echo an answer each
  an answer each
jsonl: stderr schemas/stats.schema.json
where: len(it) == 20
where: all(b["prompt"]["computed"] == b["prompt"]["tokens"] - a["prompt"]["tokens"] - a["output"]["tokens"] + (a["stop"] != "end") for a, b in zip(it, it[1:]))
where: it[0]["prompt"]["computed"] == it[0]["prompt"]["tokens"] and it[19]["prompt"]["tokens"] > 600

# The report says both numbers
$ qgen chat -m two --stats
  Hello there.
  Hello there.
stdin:
  a
  b
stderr:
  ...
    prompt  2 tokens, * (glob)
  ...
    prompt  7 tokens \(3 new\), .* (re)
  ...

# Messages of many lines; a slash that begins a message
$ qgen chat -m two > /dev/null
stdin:
  one \
  two
  """
  three
  /four
  """
  //five
  /save lines.json
where: [m["content"] for m in json.load(open(f"{folder}/lines.json"))["messages"]][::2] == ["one \ntwo", "three\n/four", "/five"]

# What was begun must end
$ printf '"""\nx\n' | qgen chat -m two
stderr: qgen: standard input: a message that begins with """ has no end (expected """)
exit: 2

# What is saved meets its schema
$ qgen chat -m two --system 'Be "nice".' > /dev/null
stdin:
  Hi
  /save talk.json
json: talk.json schemas/chat.schema.json
where: it == {"schema": 1, "model": "two", "system": 'Be "nice".', "messages": [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "Hello there."}]}

# And is gone on with: the prompt holds what was said
$ printf 'More\n' | qgen chat -m two --resume talk.json --stats=json 2>&1 > /dev/null | grep -o '"prompt":{"tokens":[0-9]*'
  "prompt":{"tokens":32

# Its environment twin
$ printf '/save same.json\n' | QGEN_RESUME=talk.json qgen chat -m two && cmp talk.json same.json

# A list of messages too
$ printf '[{"role":"user","content":"Hi"},{"role":"assistant","content":"Yes"}]' > list.json; printf '/load list.json\n/undo\n/save again.json\n' | qgen chat -m two
where: json.load(open(f"{folder}/again.json"))["messages"] == []

# Files that are not there, or no conversations
$ qgen chat -m two --resume nowhere.json
stderr: qgen: nowhere.json: * (glob)
exit: 2

$ printf '{"messages":7}' > bad.json; qgen chat -m two --resume bad.json
stderr: qgen: bad.json: messages: expected a list of messages
exit: 2

$ printf '/load bad.json\n' | qgen chat -m two
stderr: qgen: bad.json: messages: expected a list of messages
exit: 2

# A resumed conversation that does not fit is an error before any work
$ qgen chat -m two --resume talk.json -c 12
stderr:
  qgen: two: the prompt does not fit in the context (expected at most 12 tokens, found *) (glob)
  hint: * (glob)
exit: 2

# A turn that does not fit ends a script, with both numbers
$ printf 'Hi\nAnd what about a longer question?\n' | qgen chat -m two -c 20
  Hello there.
stderr:
  qgen: two: the conversation does not fit in the context (expected at most 20 tokens, found *) (glob)
  hint: /undo takes back the last turn, /clear starts over, --context N makes more room
exit: 2

# A context that fills while an answer is written is said
$ qgen chat -m endless -c 5 > /dev/null
stdin: Hi
stderr: qgen: warning: endless: the context of 5 tokens is full, the answer is not complete
exit: 6

# Commands: what was asked for is told, what was done is not
$ qgen chat -m two --system Be
stdin:
  /system
  /temp 0.5
  /temp
  /system Better
  /system
  /system ""
  /system
stderr:
  Be
  temperature 0.5 (flag)
  Better
  no system message

# /retry answers the last question again, and keeps one answer
$ printf 'Hi\n/retry\n/save retried.json\n' | qgen chat -m two
  Hello there.
  Hello there.
where: len(json.load(open(f"{folder}/retried.json"))["messages"]) == 2

$ printf '/retry\n' | qgen chat -m two
stderr: qgen: /retry: there is no question yet
exit: 2

# Where it draws, it draws anew, so long an answer that it is another one; with a seed it does not
$ for seed in "" "--seed 3"; do printf 'Once upon a time\n/retry\n' | qgen chat -m chat -c 512 -n 40 --temp 1 $seed | sort | uniq -d | wc -l; done
  0
  1

# A conversation that ends in a question is gone on with by /retry
$ printf '[{"role":"user","content":"Hi"}]' > asked.json; printf '/retry\n' | qgen chat -m two --resume asked.json
  Hello there.

# /file sends what is in a file, and a text after it
$ printf 'one\r\ntwo\r\n' > 'a file.txt'; printf '/file "a file.txt" What is it?\n/file asked.json\n/save files.json\n' | qgen chat -m two
  Hello there.
  Hello there.
where: [m["content"] for m in json.load(open(f"{folder}/files.json"))["messages"]][::2] == ["one\ntwo\n\nWhat is it?", '[{"role":"user","content":"Hi"}]']

$ printf '/file nowhere\n' | qgen chat -m two
stderr: qgen: nowhere: * (glob)
exit: 2

# /seed, /tokens
$ qgen chat -m two --temp 1
  Hello there.
stdin:
  /seed 7
  /seed
  Hi
  /seed random
  /seed
  /tokens
  /tokens a b c
stderr:
  seed 7 for every answer
  a random seed for each answer, the last was 7
  5 of 4096 tokens in the context
  5 tokens

# /bye and /quit end it as /exit does
$ for word in bye quit exit; do printf "/$word\nHi\n" | qgen chat -m two; done

# Bytes in a pipe that are no UTF-8 are an error that names line and byte
$ printf 'Hi\ncaf\xe9\n' | qgen chat -m two
  Hello there.
stderr:
  qgen: standard input: not UTF-8 (found the byte 0xE9 at offset 3, line 2)
  hint: * (glob)
exit: 2

$ printf '\xef\xbb\xbfcaf\xe9\r\n/save windows.json\n' | qgen chat -m two --invalid-utf8 replace
  Hello there.
where: json.load(open(f"{folder}/windows.json"))["messages"][0]["content"] == "caf\ufffd"

# One suggestion
$ printf '/hlep\n' | qgen chat -m two
stderr:
  qgen: /hlep: no such command
  hint: did you mean /help? (//hlep sends it as a message)
exit: 2

$ printf '/save\n' | qgen chat -m two
stderr: qgen: /save: needs a value (expected /save FILE)
exit: 2

# /exit ends before the rest
$ printf 'Hi\n/exit\nHi\n' | qgen chat -m two
  Hello there.

# Thinking is left out of a pipe, and kept apart in the conversation
$ python3 $ROOT/tests/cli/scripted_model.py thinks "<think>" "It is " "late." "</think>" "Good " "night." && cp template thinks/chat_template.jinja && qgen chat -m thinks
  Good night.
stdin:
  Hi
  /save thought.json
json: thought.json schemas/chat.schema.json
where: it["messages"][1] == {"role": "assistant", "content": "Good night.", "reasoning_content": "It is late."}

# A closed pipe is silent
$ (while echo Hi; do sleep 0.01; done) 2> /dev/null | qgen chat -m two | head -n 1
  Hello there.
exit: 141

# Ctrl-C ends a script
$ qgen chat -m endless
  ...
send: Hi\n
expect: 000
signal: INT
exit: 130

# On a terminal: a greeting, a prompt, answers with a blank line after them; Ctrl-D ends
$ qgen chat -m two --color never
  Hello there.
  
  Hello there.
  
stderr:
  two · * · context 4096 · /help lists commands (glob)
  ...
tty: in out err
expect: 2004h>
send: Hi\r
expect: there.
expect: 2004h>
send: Oh\r
expect: there.
expect: 2004h>
send: ^D

# --quiet prints no greeting
$ qgen chat -m two -q
stderr: ...
tty: in out err
expect: 2004h>
send: ^D
where: "two" not in err

# Ctrl-C stops an answer and keeps the session, however often it is pressed
$ qgen chat -m endless
  ...
stderr: ...
tty: in out err
expect: 2004h>
send: Hi\r
expect: 000
send: ^C^C^C
expect: 2004h>
send: /save stopped.json\r
expect: 2 messages saved
expect: 2004h>
send: ^D
json: stopped.json schemas/chat.schema.json
where: it["messages"][1]["content"].startswith("000")

# At the prompt it gives up the line; on an empty one, twice, it ends
$ qgen chat -m two
stderr: ...
tty: in out err
expect: 2004h>
send: Hi
expect: Hi
send: ^C
expect: 2004h>
send: ^C
expect: Ctrl-C again
expect: 2004h>
send: ^C

# Errors within a turn are told, and the session goes on
$ qgen chat -m two -c 20
  ...
stderr: ...
tty: in out err
expect: 2004h>
send: Is this question too long?\r
expect: found
expect: 2004h>
send: Hi\r
expect: there.
expect: 2004h>
send: /stats\r
expect: 1 turn, 5 of 20 tokens
expect: 2004h>
send: ^D
where: "two: the conversation does not fit in the context (expected at most 20 tokens, found" in err and "/undo" in err

# SIGTERM: 143, and the terminal is as it was
$ trap : TERM; stty -g > before; qgen chat -m two; code=$?; stty -g > after; cmp before after && exit $code
stderr: ...
tty: in out err
expect: 2004h>
send: half a line
expect: half
signal: TERM
exit: 143

# In the middle of an answer too
$ trap : TERM; stty -g > before; qgen chat -m endless; code=$?; stty -g > after; cmp before after && exit $code
  ...
stderr: ...
tty: in out err
expect: 2004h>
send: Hi\r
expect: 000
signal: TERM
exit: 143

# Editing knows characters of several bytes; pasted text is one message
$ qgen chat -m two
  ...
stderr: ...
tty: in out err
expect: 2004h>
send: grün^H^Hoß\r
expect: there.
expect: 2004h>
send: \e[200~a\r\nb\nc\n\e[201~!\r
expect: there.
expect: 2004h>
send: /save edited.json\r
expect: saved
expect: 2004h>
send: ^D
json: edited.json schemas/chat.schema.json
where: [m["content"] for m in it["messages"]][::2] == ["groß", "a\nb\nc!"]

# The history is the user's alone, and is there the next time
$ stat -c %a .local/state/qgen/history; qgen chat -m two
  600
  Hello there.
  
stderr: ...
tty: in out err
expect: 2004h>
send: ^P^P^P\r
expect: there.
expect: 2004h>
send: ^D

# A history that cannot be written is done without
$ XDG_STATE_HOME=/dev/null qgen chat -m two
  Hello there.
  
stderr: ...
tty: in out err
expect: 2004h>
send: Hi\r
expect: there.
expect: 2004h>
send: ^D

# Answers are wrapped at words on a terminal, and not elsewhere
$ python3 $ROOT/tests/cli/scripted_model.py long "The quick " "brown fox " "jumps over " "the lazy " "dog" "." && cp template long/; cp template long/chat_template.jinja; qgen chat -m long <<< Hi
  The quick brown fox jumps over the lazy dog.

$ qgen chat -m long
  The quick brown fox jumps over
  the lazy dog.
  
stderr: ...
tty: in out err 30x24
expect: 2004h>
send: Hi\r
expect: dog.
expect: 2004h>
send: ^D

# The main job does the same
$ qgen -m long -p Hi
  The quick brown fox jumps over
  the lazy dog.
tty: out 30x24

# What is typed ahead is not shown within an answer: the terminal echoes nothing then, and is as it was afterwards
$ state() { stty -a | tr ' ;' '\n' | grep -xE -- '-?(icanon|echo)' | paste -sd ' '; }; (trap '' INT TERM; for i in {1..15}; do state; sleep 0.1; done > seen) <&0 & qgen chat -m endless --device reference; code=$?; wait; grep -x 'icanon -echo' seen | uniq; state; exit $code
  ...
  icanon -echo
  icanon echo
stderr: ...
tty: in out err
expect: 2004h>
send: Hi\r
expect: 000
wait: 1 s
send: ^C
expect: 2004h>
send: ^D

# In the main job too, whatever ends it
$ state() { stty -a | tr ' ;' '\n' | grep -xE -- '-?(icanon|echo)' | paste -sd ' '; }; (trap '' INT TERM; for i in {1..15}; do state; sleep 0.1; done > seen) <&0 & trap : TERM; qgen -m endless -p Hi --device reference; code=$?; wait; grep -x 'icanon -echo' seen | uniq; state; exit $code
  ...
  icanon -echo
  icanon echo
stderr: ...
tty: in out err
expect: 000
wait: 1 s
signal: TERM
exit: 143
