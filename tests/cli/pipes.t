# Streams of all kinds: readers that are slow or stuck, pipes that do not block, files that may not grow.

$ python3 $ROOT/tests/cli/scripted_model.py endless $(printf '%01000d_a %01000d_b' 0 0) loop

# A pipe that does not block loses nothing, whatever its reader does
$ qgen -m endless -p go -n 300 > whole; python3 - << 'END'
> import os, subprocess, time
> ends = os.pipe()
> os.set_blocking(ends[1], False)
> program = subprocess.Popen(["qgen", "-m", "endless", "-p", "go", "-n", "300", "--no-stdin"], stdout=ends[1])
> os.close(ends[1])
> time.sleep(1)
> data = b""
> while block := os.read(ends[0], 1000):
>     data += block
> print(program.wait(), data == open("whole", "rb").read(), len(data) > 200000)
> END
  0 True True

# Nor does a report in such a pipe
$ qgen -m $MODEL -p Once -n 500 --temp 0 --logprobs 20 --stats-file whole.json > /dev/null; python3 - << 'END'
> import json, os, subprocess, time
> ends = os.pipe()
> os.set_blocking(ends[1], False)
> program = subprocess.Popen(["qgen", "-m", os.environ["MODEL"], "-p", "Once", "-n", "500", "--temp", "0", "--logprobs", "20",
>                             "--stats=json", "--no-stdin"], stdout=subprocess.DEVNULL, stderr=ends[1])
> os.close(ends[1])
> time.sleep(2)
> data = b""
> while block := os.read(ends[0], 1000):
>     data += block
> print(program.wait(), json.loads(data)["logprobs"] == json.load(open("whole.json"))["logprobs"], len(data) > 200000)
> END
  0 True True

# Standard input that does not block is waited for
$ python3 - << 'END'
> import os, subprocess, time
> for words in (["-n", "3", "--temp", "0"], ["tokens"], ["score"]):
>     ends = os.pipe()
>     os.set_blocking(ends[0], False)
>     command = ["qgen"] + [w for w in words if w.isalpha()] + ["-m", os.environ["MODEL"]] + [w for w in words if not w.isalpha()]
>     program = subprocess.Popen(command, stdin=ends[0], stdout=subprocess.PIPE)
>     os.close(ends[0])
>     for part in b"Once upon", b" a time":
>         time.sleep(0.3)
>         os.write(ends[1], part)
>     os.close(ends[1])
>     print(program.communicate()[0].decode().splitlines()[0], program.returncode)
> END
  , there was 0
  1 403 407 261 378 0
  0	1	-	"<s>" 0

# A batch ends as well where its reader is stuck
$ printf '{"prompt":"go"}\n%.0s' {1..2000} > many.jsonl; exec qgen -m endless --batch many.jsonl -n 200 > >(trap '' TERM; head -c 1 > /dev/null; echo stuck >&2; exec sleep 20 > /dev/null 2>&1)
stderr: stuck
expect: stuck
wait: 700 ms
signal: TERM
exit: 143
within: 5 s

# A report that cannot be written was asked for
$ qgen -m $MODEL -p "Once upon a time" -n 3 --temp 0 --stats 2> /dev/full
  , there was (no-eol)
exit: 1

# A signal that is ignored stays so
$ trap '' INT; exec qgen -m $MODEL -p "Once upon a time" -c 10000 -n 3000 --temp 1 --seed 1 --stats=json
  ...
allow: escapes
expect: ,
signal: INT
wait: 50 ms
json: stderr schemas/stats.schema.json
where: it["stop"] != "interrupted"

# A file that may grow no longer
$ (ulimit -f 1; exec qgen -m endless -p go -n 100) > grown
stderr: qgen: standard output: cannot write: File too large
exit: 1

# Standard output that is closed, and no file of ours in its place
$ qgen -m $MODEL -p "Once" -n 2 >&-
stderr: qgen: standard output: cannot write: Bad file descriptor
exit: 1
