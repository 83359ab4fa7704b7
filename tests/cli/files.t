# Files of a model and of a user: what is none in a file's place, what is written and what is not.

$ printf '{%% for m in messages %%}{{ m.content }}{%% endfor %%}:' > template

# Optional files of a model that are no files: an error that names them, not a run without them
$ for name in chat_template.jinja generation_config.json tokenizer_config.json; do
>   for kind in dangling loop pipe folder; do
>     rm -rf model && mkdir model && cp $MODEL/* model/ && rm -f model/$name
>     case $kind in
>       dangling) ln -s nowhere model/$name ;;
>       loop) ln -s $name model/$name ;;
>       pipe) mkfifo model/$name ;;
>       folder) mkdir model/$name ;;
>     esac
>     timeout 5 qgen -m model -p Once -n 1 > out 2> err; echo "$kind $? $(cat out) $(cat err)"
>   done
> done
  dangling 3  qgen: model/chat_template.jinja: cannot open: a link to a file that is missing
  loop 3  qgen: model/chat_template.jinja: cannot open: Too many levels of symbolic links
  pipe 3  qgen: model/chat_template.jinja: not a regular file
  folder 3  qgen: model/chat_template.jinja: not a regular file
  dangling 3  qgen: model/generation_config.json: cannot open: a link to a file that is missing
  loop 3  qgen: model/generation_config.json: cannot open: Too many levels of symbolic links
  pipe 3  qgen: model/generation_config.json: not a regular file
  folder 3  qgen: model/generation_config.json: not a regular file
  dangling 3  qgen: model/tokenizer_config.json: cannot open: a link to a file that is missing
  loop 3  qgen: model/tokenizer_config.json: cannot open: Too many levels of symbolic links
  pipe 3  qgen: model/tokenizer_config.json: not a regular file
  folder 3  qgen: model/tokenizer_config.json: not a regular file

# The same for the weights, beside which others lie
$ rm -rf model && mkdir model && cp $MODEL/* model/ && mv model/model.safetensors model/other.safetensors && ln -s nowhere model/model.safetensors; qgen -m model -p Once -n 1
stderr: qgen: model/model.safetensors: cannot open: a link to a file that is missing
exit: 3

# A model that is a loop of links, and one that is a link to nothing
$ ln -s loop loop; qgen -m loop -p Once
stderr: qgen: loop: cannot open: Too many levels of symbolic links
exit: 3

$ ln -s nowhere dangling; qgen -m dangling -p Once
stderr: qgen: dangling: cannot open: a link to a file that is missing
exit: 3

# A pipe as a model, a link to one, and one with a model's name are named at once; so is a device
$ mkfifo pipe pipe.gguf pipe.safetensors && ln -s pipe link; for name in pipe link pipe.gguf pipe.safetensors /dev/null; do timeout 5 qgen plan -m $name; done
stderr:
  qgen: pipe: not a regular file
  qgen: link: not a regular file
  qgen: pipe.gguf: not a regular file
  qgen: pipe.safetensors: not a regular file
  qgen: /dev/null: not a regular file
exit: 3

# In a folder without any other model as well
$ mkdir only && mkfifo only/model-Q8_0.gguf && timeout 5 qgen plan -m only
stderr: qgen: only/model-Q8_0.gguf: not a regular file
exit: 3

$ rm only/* && ln -s nowhere only/model-Q8_0.gguf; qgen plan -m only
stderr: qgen: only/model-Q8_0.gguf: cannot open: a link to a file that is missing
exit: 3

# Another model beside it is not taken for it
$ cp $MODEL/config.json only/ && printf GGUF > only/model-F16.gguf; qgen plan -m only
stderr: qgen: only/model-Q8_0.gguf: cannot open: a link to a file that is missing
exit: 3

# --stats-file writes over reports and empty files only
$ for content in '' notes '{"schema":1,"model":"m","system":null,"messages":[]}' '{"schema":1,"model":"m","engine":"cpu"}'; do
>   printf '%s' "$content" > kept; qgen -m $MODEL -p Once -n 1 --stats-file kept > /dev/null 2> err; echo "$? $(grep -c tokens_per_second kept) $(head -n 1 err)"
> done
  0 1 
  1 0 qgen: --stats-file kept: cannot write: it holds something else than a report
  1 0 qgen: --stats-file kept: cannot write: it holds something else than a report
  0 1 

# Not over other JSON of this program: results of measurements, a plan, an answer, whatever the model is called
$ cp -r $MODEL 'a","engine":"b' && qgen bench -m $MODEL -p 4 -n 0 -d 0 -r 1 --output json > kept0; qgen plan -m $MODEL -c 100 --json > kept1; qgen -m $MODEL -p Once -n 1 --json > kept2; qgen inspect --json -m 'a","engine":"b' > kept3
> for i in 0 1 2 3; do cp kept$i kept; qgen -m $MODEL -p Once -n 1 --stats-file kept 2>&1; cmp kept kept$i; done | grep -v ^hint
  qgen: --stats-file kept: cannot write: it holds something else than a report
  qgen: --stats-file kept: cannot write: it holds something else than a report
  qgen: --stats-file kept: cannot write: it holds something else than a report
  qgen: --stats-file kept: cannot write: it holds something else than a report

# Its own of an earlier run, of one line or a batch, of such a model as well
$ for i in 1 2; do qgen -m 'a","engine":"b' -p Once -n 1 --stats-file odd.json && qgen -m 'a","engine":"b' --batch <(echo '{"prompt":"Once"}') -n 1 --stats-file odd.json; done > /dev/null; grep -c '"lines":1' odd.json
  1

$ printf '{"prompt":"Once"}\n' > one.jsonl; for i in 1 2; do qgen -m $MODEL -p Once -n 1 --stats-file twice.json && qgen -m $MODEL --batch one.jsonl -n 1 --stats-file twice.json; done > /dev/null; grep -c '"lines":1' twice.json
  1

# A start that fails leaves no file behind
$ qgen -m nowhere -p Once --stats-file left.json; ls left.json
stderr: ...
exit: 2

# A pipe without a reader is an error at once; one with a reader gets one report
$ mkfifo unread; timeout 5 qgen -m $MODEL -p Once -n 1 --stats-file unread
stderr: qgen: --stats-file unread: cannot write: the pipe has no reader
exit: 1

$ mkfifo read; cat read > copy & for i in {1..100}; do qgen -m $MODEL -p Once -n 1 --stats-file read > /dev/null 2>&1 && break; sleep 0.1; done; wait; grep -c tokens_per_second copy
  1

$ qgen -m $MODEL -p Once -n 1 --stats-file >(grep -c tokens_per_second > counted) > /dev/null; for i in $(seq 50); do test -s counted && break; sleep 0.1; done; cat counted
  1

$ qgen -m $MODEL -p Once -n 1 --stats-file $TMP
stderr: qgen: --stats-file $TMP: cannot write: Is a directory
exit: 1

$ python3 $ROOT/tests/cli/scripted_model.py two "Hello " "there." && cp template two/chat_template.jinja

# A conversation is saved under a name of any length, whatever lies beside it, and nothing else appears
$ name=$(printf '%0255d' 0); mkdir saved && cd saved && sh -c "touch talk.json.\$\$.tmp; printf 'Hi\n/save talk.json\n/save talk.json\n/save $name\n' | exec qgen chat -m ../two" > /dev/null && ls -A | grep -v tmp | cut -c 1-10 && cmp talk.json $name
  0000000000
  talk.json

# One that cannot be written whole leaves the old file as it was and nothing else
$ cd saved && cp talk.json before.json && (ulimit -f 1; { printf '%05000d\n' 0; echo '/save talk.json'; } | exec qgen chat -m ../two -c 8000 > /dev/null); echo $?; cmp talk.json before.json && ls -A | grep -vc tmp
  1
  3
stderr:
  qgen: warning: --context 8000: two was made for 4096 tokens, beyond them answers get worse
  qgen: $TMP/saved/talk.json: cannot write: File too large

# A header that asks for more than any file holds is damaged, and no matter of memory
$ python3 -c "
> import struct
> name = b'output_norm.weight'
> key = lambda name, text: struct.pack('<Q', len(name)) + name + struct.pack('<IQ', 8, len(text)) + text
> header = b'GGUF' + struct.pack('<IQQ', 3, 1, 1) + key(b'general.architecture', b'llama')
> header += struct.pack('<Q', len(name)) + name + struct.pack('<IQIQ', 1, 1 << 50, 0, 0)
> open('huge.gguf', 'wb').write(header + b'\0' * 64)"; qgen inspect huge.gguf
stderr:
  qgen: huge.gguf: tensor output_norm.weight: truncated: ends beyond the file (expected 4503599627370496 bytes from 0, found *) (glob)
  hint: an interrupted download? compare the file's size with the original
exit: 3

# A name that a script left empty
$ qgen -m $MODEL -p a -n 1 --batch "" > /dev/null 2>&1 || echo $?
  2
$ qgen -m $MODEL -p a -n 1 --stats-file ""
stderr:
  qgen: --stats-file: empty (expected the name of a file)
  hint: `qgen --help` lists the options
exit: 2
