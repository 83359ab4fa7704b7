# Signals: Ctrl-C stops, reports and exits with 130, a second one at once; SIGTERM 143; a closed pipe is silent, 141.

# A long answer in a pipe: Ctrl-C stops it, with the text so far and the report
$ qgen -m $MODEL -p "Once upon a time" -c 100000 -n 90000 --temp 1 --seed 1 --stats=json
  ...
allow: escapes
expect: ,
signal: INT
exit: 130
json: stderr schemas/stats.schema.json
where: it["stop"] == "interrupted" and it["output"]["tokens"] > 0

# SIGTERM does the same
$ qgen -m $MODEL -p "Once upon a time" -c 100000 -n 90000 --temp 1 --seed 1 --stats=json
  ...
allow: escapes
expect: ,
signal: TERM
exit: 143
json: stderr schemas/stats.schema.json
where: it["stop"] == "interrupted"

# Without a report there is none
$ qgen -m $MODEL -p "Once upon a time" -c 100000 -n 90000 --temp 1 --seed 1 -q
  ...
allow: escapes
expect: ,
signal: INT
exit: 130

# The key on a terminal: the text's line is ended, the report follows
$ qgen -m $MODEL -p "Once upon a time" -c 100000 -n 90000 --temp 1 --seed 1
  ...
stderr:
  ...
  .*stories260K-FP8 · 5 in, .* · interrupted · seed 1.* (re)
  ...
tty: in out err
expect: answers get worse
expect: ,
send: ^C
exit: 130
where: out.endswith("\n")

$ python3 $ROOT/tests/cli/scripted_model.py endless $(printf '%01000d_a %01000d_b' 0 0) loop

# A reader that is stuck: one Ctrl-C ends the program, and so does one SIGTERM
$ exec qgen -m endless -p "go" --stats > >(trap '' INT; head -c 1 > /dev/null; echo stuck >&2; exec sleep 20 > /dev/null 2>&1)
stderr: stuck
expect: stuck
wait: 500 ms
signal: INT
exit: 130
within: 5 s

$ exec qgen -m endless -p "go" --stats > >(trap '' TERM; head -c 1 > /dev/null; echo stuck >&2; exec sleep 20 > /dev/null 2>&1)
stderr: stuck
expect: stuck
wait: 500 ms
signal: TERM
exit: 143
within: 5 s

$ head -c 3000 /dev/zero | tr '\0' 'a' > long

# Ctrl-C before the answer: the prompt is long, the reference engine slow
$ qgen -m $MODEL -f long --no-stdin -c 8000 --device reference --stats
stderr:
  ...
  *stop: interrupted* (glob)
  ...
tty: err
expect: reading the prompt
signal: INT
exit: 130

# SIGTERM then
$ qgen -m $MODEL -f long --no-stdin -c 8000 --device reference --stats
stderr:
  ...
  *stop: interrupted* (glob)
  ...
tty: err
expect: reading the prompt
signal: TERM
exit: 143

# While standard input is awaited
$ qgen -m $MODEL -p -
tty: in
wait: 200 ms
send: ^C
exit: 130

# While a text is scored
$ qgen score -m $MODEL long -c 8000 --device reference
stderr: ...
wait: 300 ms
signal: INT
exit: 130

# A closed pipe is silent
$ qgen -m $MODEL -p "Once upon a time" -n 400 --temp 0 | head -c 10
  , there wa (no-eol)
exit: 141

# Even with a report asked for
$ qgen -m $MODEL -p "Once upon a time" -n 400 --temp 0 --stats | head -c 1
  , (no-eol)
exit: 141

# And within a second
$ qgen -m $MODEL -p "Once upon a time" -c 100000 -n 90000 --temp 1 --seed 1 -q | head -c 1
  , (no-eol)
exit: 141
within: 1 s

# The commands too
$ qgen score -m $MODEL < <(sleep 0.3; printf 'Once upon a time') | true
exit: 141

$ qgen tokens -m $MODEL < <(sleep 0.3; printf 'Once upon a time') | true
exit: 141

# And the help
$ (sleep 0.3; exec qgen --help) | true
exit: 141
