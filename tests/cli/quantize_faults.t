# `qgen quantize` where something goes wrong: it is killed, the disk is full, files go away, two runs meet. What is not
# complete never loads, the model that is read stays as it is, and what one run would have written comes out in the end.

# A llama of BF16 noise in five shards
file: model.py
  import json, random, struct
  from pathlib import Path
  HIDDEN, INNER, VOCABULARY, LAYERS = 256, 512, 256, 4
  noise = random.Random(7)
  # The upper bytes of BF16 numbers, signs and exponents, for magnitudes from 2^-9 to 2^-5.
  upper = bytes((byte & 0x80) | 0x3B + (byte & 1) for byte in range(256))
  
  def matrix(rows, columns):
      data = bytearray(noise.randbytes(2 * rows * columns))
      data[1::2] = bytes(data[1::2]).translate(upper)
      return (rows, columns), bytes(data)
  
  def norm():
      return (HIDDEN,), b"\x80\x3f" * HIDDEN
  
  def layer(number):
      shapes = {"self_attn.q_proj": (HIDDEN, HIDDEN), "self_attn.k_proj": (HIDDEN // 2, HIDDEN),
                "self_attn.v_proj": (HIDDEN // 2, HIDDEN), "self_attn.o_proj": (HIDDEN, HIDDEN),
                "mlp.gate_proj": (INNER, HIDDEN), "mlp.up_proj": (INNER, HIDDEN), "mlp.down_proj": (HIDDEN, INNER)}
      tensors = {name: matrix(*shape) for name, shape in shapes.items()}
      tensors |= {"input_layernorm": norm(), "post_attention_layernorm": norm()}
      return {f"model.layers.{number}.{name}.weight": tensor for name, tensor in tensors.items()}
  
  shards = [{"model.embed_tokens.weight": matrix(VOCABULARY, HIDDEN), "model.norm.weight": norm()}]
  shards += [layer(number) for number in range(LAYERS)]
  folder, files = Path("src"), {}
  folder.mkdir()
  for number, tensors in enumerate(shards, 1):
      name, header, end = f"model-{number:05}-of-{len(shards):05}.safetensors", {}, 0
      for tensor, (shape, data) in tensors.items():
          header[tensor] = {"dtype": "BF16", "shape": shape, "data_offsets": [end, end + len(data)]}
          end += len(data)
          files[tensor] = name
      text = json.dumps(header).encode()
      data = b"".join(data for _, data in tensors.values())
      (folder / name).write_bytes(struct.pack("<Q", len(text)) + text + data)
  (folder / "model.safetensors.index.json").write_text(json.dumps({"metadata": {}, "weight_map": files}))
  (folder / "tokenizer_notes.txt").write_text("a file beside the weights\n")
  (folder / "config.json").write_text(json.dumps({
      "architectures": ["LlamaForCausalLM"], "model_type": "llama", "torch_dtype": "bfloat16", "hidden_size": HIDDEN,
      "intermediate_size": INNER, "num_hidden_layers": LAYERS, "num_attention_heads": 4, "num_key_value_heads": 2,
      "max_position_embeddings": 64, "vocab_size": VOCABULARY, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
      "tie_word_embeddings": True, "hidden_act": "silu"}))

# What kills runs, stops them half-way and looks at what they leave. A check that fails prints a line. Wherever in a run a
# signal lands, also before its start and after its end, the same must hold.
file: faults.py
  import filecmp, os, shutil, signal, subprocess, sys, time
  from pathlib import Path
  
  OUT, MARK = Path("out"), Path("out/INCOMPLETE.qgen.json")
  SLOW = {"int8": ["--mode", "mse", "--mse-grid", "80"], "q8_0": ["--mode", "mse", "--mse-grid", "20"]}
  SHARDS = 5
  
  def command(to, *options, model="src", out=OUT):
      return ["qgen", "quantize", "-q", "-m", model, "--to", to, "--out", str(out), *SLOW[to], *options]
  
  def run(*words):
      result = subprocess.run(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
      return result.returncode, result.stderr
  
  def start(*words):
      return subprocess.Popen(words, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
  
  def clear(path=OUT):
      shutil.rmtree(path) if path.is_dir() else path.unlink(missing_ok=True)
  
  def files(folder):
      return {str(path.relative_to(folder)): path.read_bytes() for path in folder.rglob("*") if path.is_file()}
  
  def check(good, *words):
      if not good:
          print(*words)
      return good
  
  def same(folder, reference, *words):
      found, expected = files(folder), files(reference)
      differ = [name for name in sorted(found.keys() | expected.keys()) if found.get(name) != expected.get(name)]
      check(not differ, *words, "differ:", *differ)
  
  def done_shards():
      return len(list(OUT.glob("*.safetensors"))) if OUT.is_dir() else 0
  
  # Kills a run after so many shards and so many seconds more; it may have ended by then.
  def kill(process, shards, seconds):
      while done_shards() < shards and process.poll() is None:
          time.sleep(0.001)
      time.sleep(seconds)
      process.kill()
      process.communicate()
  
  # What a run that was killed left must be refused by name, unless it is complete. The options that go on with it; None
  # where there is nothing to do.
  def left(*words):
      if not OUT.exists() or not any(OUT.iterdir()):
          code, _ = run("qgen", "plan", "-m", str(OUT))
          check(code == 3, *words, "nothing there, and plan ended with", code)
          return []
      if not MARK.exists():
          return None
      code, said = run("qgen", "plan", "-m", str(OUT))
      check(code == 3 and "out: this checkpoint is not complete" in said and "--resume goes on" in said, *words,
            "not refused:", code, said)
      return ["--resume"] if MARK.stat().st_size > 0 else []
  
  def seconds_of(*words):
      begin = time.monotonic()
      code, said = run(*words)
      check(code == 0, *words, "ended with", code, said)
      return time.monotonic() - begin
  
  # Kills of first runs, by time and by progress or by that alone; every other one's --resume is killed as well.
  def kills(to, by="both"):
      clear(Path("reference"))
      whole = seconds_of(*command(to, out="reference"))
      marked = 0
      points = [(0, part * whole) for part in (0, 0.25, 0.5, 0.75, 0.95, 1.1) if by == "both"]
      points += [(shards, 0.1 * whole / SHARDS * shards) for shards in range(1, SHARDS)] + [(SHARDS, 0)]
      for number, (shards, seconds) in enumerate(points):
          words = [f"kill {number} after {shards} shards and {seconds:.3f} s:"]
          clear()
          kill(start(*command(to)), shards, seconds)
          options = left(*words)
          marked += options == ["--resume"]
          if number % 2 and options is not None:
              kill(start(*command(to, *options)), 0, whole * (number + 1) / 24)
              options = left(*words, "and of what went on:")
          if options is not None:
              code, said = run(*command(to, *options))
              check(code == 0, *words, *options, "ended with", code, said)
          same(OUT, Path("reference"), *words)
      check(marked >= 2, "only", marked, "of", len(points), "kills came in the midst")
      print(len(points), "kills")
  
  # A file has its name once it is complete, and nothing is in the way of the next run. With --force: the old or the new.
  def kills_of_file(*options):
      target, old, reference = OUT / "new.gguf", Path("old.gguf"), Path("reference.gguf")
      clear(reference)
      whole = seconds_of(*command("q8_0", out=reference))
      if not old.exists():
          run("qgen", "quantize", "-q", "-m", "src", "--to", "q8_0", "--out", str(old), "--mode", "rms")
      check(not filecmp.cmp(old, reference, shallow=False), "both modes wrote the same")
      early, parts = 0, (0.2, 0.5, 0.7, 0.9, 1.1) if options else (0, 0.2, 0.4, 0.6, 0.8, 0.95, 1.1)
      for part in parts:
          words = [f"kill at {part} of {whole:.3f} s:"]
          clear()
          OUT.mkdir()
          if options:
              shutil.copy(old, target)
          kill(start(*command("q8_0", *options, out=target)), 0, part * whole)
          found = target.read_bytes() if target.exists() else None
          complete = found == reference.read_bytes()
          early += not complete
          check(complete or found == (old.read_bytes() if options else None), *words, "half a file")
          if not options:
              check(complete or not any(OUT.iterdir()), *words, "left", *os.listdir(OUT))
          if not complete:
              code, said = run(*command("q8_0", *options, out=target))
              check(code == 0, *words, "the next run ended with", code, said)
          check(filecmp.cmp(target, reference, shallow=False), *words, "the next run wrote other bytes")
      check(early >= 2, "only", early, "of", len(parts), "kills came before the end")
      print(len(parts), "kills")
  
  # A run that waits after so many shards. Where the machine was so busy that it got to its end, another one.
  def halted(shards, model="src"):
      for _ in range(50):
          clear()
          process = start(*command("int8", model=model))
          while done_shards() < shards and process.poll() is None:
              time.sleep(0.001)
          process.send_signal(signal.SIGSTOP)
          if process.poll() is None:
              _, status = os.waitpid(process.pid, os.WUNTRACED)
              if os.WIFSTOPPED(status) and MARK.exists() and MARK.stat().st_size > 0 and done_shards() <= max(shards, SHARDS - 2):
                  return process
          process.kill()
          process.communicate()
      sys.exit("no run could be stopped half-way")
  
  def go_on(process):
      process.send_signal(signal.SIGCONT)
      _, said = process.communicate()
      return process.returncode, said
  
  def second():
      process = halted(1)
      before = files(OUT)
      for options in ([], ["--resume"], ["--force"], ["--force", "--keep", "layers.0"]):
          code, said = run(*command("int8", *options))
          check((code, said) == (1, "qgen: --out out: another run writes into this folder\n"), *options, code, said)
      check(files(OUT) == before, "the folder changed while its run waited")
      code, said = go_on(process)
      check(code == 0, "the first run ended with", code, said)
      same(OUT, Path("reference"), "the first run's files")
      print("refused")
  
  # A second run that a debugger holds up at its first look at the mark until the first run has ended.
  def late(call, *options):
      process = halted(SHARDS - 1)
      hold = ["strace", "-f", "-qq", "-o", "/dev/null", "-P", str(MARK), "-e", f"trace={call}", "-e", f"inject={call}:delay_enter=900000:when=1"]
      other = start(*hold, "qgen", "quantize", "-q", "-m", "src", "--to", "int8", "--out", "out", *options)
      time.sleep(0.5)
      code, said = go_on(process)
      check(code == 0, "the first run ended with", code, said)
      _, said = other.communicate()
      refused = other.returncode in (1, 2) and ("another run" in said or "is not empty" in said)
      print("the second run", "was refused" if refused else f"ended with {other.returncode}")
      check(refused or other.returncode == 0, "its error:", said)
      same(OUT, Path("reference" if refused else "whole"), "the files")
  
  # A shard of the model that changes in its place, or is cut off, while a run waits half-way.
  def meanwhile(change):
      model = Path("changing")
      clear(model)
      shutil.copytree("src", model)
      shard = model / f"model-{SHARDS:05}-of-{SHARDS:05}.safetensors"
      process = halted(1, model=str(model))
      with open(shard, "r+b") as file:
          if change == "cut":
              file.truncate(4096)
          else:
              file.seek(100000)
              file.write(bytes(400000))
      code, said = go_on(process)
      print("ended with", code)
      print(said, end="")
      print("marked" if MARK.exists() else "not marked")
  
  what, *rest = sys.argv[1:]
  {"kills": kills, "kills_of_file": kills_of_file, "second": second, "late": late, "meanwhile": meanwhile}[what](*rest)

# The same model in one run, as the cases below compare with it
$ python3 model.py; cksum src/* > model.cksum; $QGEN quantize -m src --to int8 --out whole -q; ls src whole
  src:
  config.json
  model-00001-of-00005.safetensors
  model-00002-of-00005.safetensors
  model-00003-of-00005.safetensors
  model-00004-of-00005.safetensors
  model-00005-of-00005.safetensors
  model.safetensors.index.json
  tokenizer_notes.txt
  
  whole:
  config.json
  model-00001-of-00005.safetensors
  model-00002-of-00005.safetensors
  model-00003-of-00005.safetensors
  model-00004-of-00005.safetensors
  model-00005-of-00005.safetensors
  model.safetensors.index.json
  tokenizer_notes.txt

# Killed at any point, also while it goes on: refused by name, and --resume ends it with the same bytes
$ python3 faults.py kills int8
  11 kills

# Two runs into one folder: the second is refused by name whatever its options, the first ends as if alone
$ python3 faults.py second
  refused

# Output files that were done, and then changed or went away, are written again
$ cp -r whole half; rm half/config.json; (ulimit -f 400; qgen quantize -m src --to int8 --out half -q --force); ls half/INCOMPLETE.qgen.json
  half/INCOMPLETE.qgen.json
stderr:
  qgen: half/model-00002-of-00005.safetensors: cannot write: File too large
  hint: the same command with --resume goes on
$ printf x | dd of=half/model-00001-of-00005.safetensors bs=1 seek=90000 conv=notrunc status=none; qgen quantize -m src --to int8 --out half -q --resume && diff -r whole half && echo same
  same

# A run that has ended leaves nothing to go on with, which it says
$ qgen quantize -m src --to int8 --out half -q --resume
stderr: qgen: --resume: half is not an unfinished checkpoint
exit: 2

# Where a file system makes no files without a name (as here, where there is no /proc to give them one by), what a kill
# leaves under a name of its own goes away in the end
$ unshare -rm bash -c 'mount -t tmpfs none /proc && python3 faults.py kills int8 progress'
  5 kills
needs: unshare -rm bash -c 'mount -t tmpfs none /proc && qgen --version'

# A full disk: the cause, no half file, the rest is marked; with room, --resume gives the same bytes
$ unshare -rm bash -c '
>   mkdir room && mount -t tmpfs -o size=4m none room && head -c 3M /dev/zero > room/else && qgen quantize -m src --to int8 --out room/out -q
>   echo exit $?; ls -A room/out; qgen plan -m room/out; echo exit $?
>   qgen quantize -m src --to int8 --out room/out -q --resume; echo exit $?
>   rm room/else; qgen quantize -m src --to int8 --out room/out -q --resume && diff -r whole room/out && echo same'
  exit 1
  INCOMPLETE.qgen.json
  model-00001-of-00005.safetensors
  model-00002-of-00005.safetensors
  exit 3
  exit 1
  same
stderr:
  qgen: room/out/model-00003-of-00005.safetensors: cannot write: No space left on device
  hint: free some space, then the same command with --resume goes on
  qgen: room/out: this checkpoint is not complete, its quantization has not ended
  hint: the same `qgen quantize` command with --resume goes on
  qgen: room/out/model-00003-of-00005.safetensors: cannot write: No space left on device
  hint: free some space, then the same command with --resume goes on
needs: unshare -rm mount -t tmpfs none /mnt
$ mkdir limited; (ulimit -f 400; qgen quantize -m src --to int8 --out limited/out -q); ls -A limited/out; qgen plan -m limited/out
  INCOMPLETE.qgen.json
  model-00001-of-00005.safetensors
stderr:
  qgen: limited/out/model-00002-of-00005.safetensors: cannot write: File too large
  hint: the same command with --resume goes on
  qgen: limited/out: this checkpoint is not complete, its quantization has not ended
  hint: the same `qgen quantize` command with --resume goes on
exit: 3
$ qgen quantize -m src --to int8 --out limited/out -q --resume && diff -r whole limited/out && echo same
  same
$ unshare -rm bash -c '
>   mkdir -p room && mount -t tmpfs -o size=4m none room && head -c 3M /dev/zero > room/else && qgen quantize -m src --to q8_0 --out room/new.gguf -q
>   echo exit $?; ls -A room; rm room/else; qgen quantize -m src --to q8_0 --out room/new.gguf -q && ls -A room'
  exit 1
  else
  new.gguf
stderr:
  qgen: room/new.gguf: cannot write: No space left on device
  hint: free some space
needs: unshare -rm mount -t tmpfs none /mnt

# So little room that the mark itself cannot be written (its paths are long): the cause is named, and the folder stays empty
$ deep=$(printf 'folder-with-a-long-name/%.0s' {1..10}); mkdir -p $deep; cp -r src ${deep}src; (ulimit -f 1; qgen quantize -m ${deep}src --to int8 --out cut -q)
stderr: qgen: cut/INCOMPLETE.qgen.json: cannot write: File too large
exit: 1
$ deep=$(printf 'folder-with-a-long-name/%.0s' {1..10}); ls -A cut; qgen quantize -m ${deep}src --to int8 --out cut -q; diff -r whole cut && echo same
  same

# A folder that --force may not write into is the checkpoint that it was
$ cp -r whole other; qgen quantize -m $ROOT/tests/golden/llama-bf16 --to int8 --out other -q --force
stderr:
  qgen: --out other: holds model-0000*-of-00005.safetensors, of another checkpoint (glob)
  hint: another folder, or remove it
exit: 2
$ diff -r whole other && qgen plan -m other | head -1
  llama * · int8 channel · cpu (glob)

# A second run without --force that starts while the first one ends is refused: the files of the first stay
$ python3 faults.py late openat
  the second run was refused
needs: strace -f -qq -o /dev/null -e trace=openat -e inject=openat:delay_enter=1 qgen --version

# A second one with --force that has opened the mark when the first takes it away: it is refused, or does its work
$ python3 faults.py late flock --force | sed '/^the second run/d'
needs: strace -f -qq -o /dev/null -e trace=flock -e inject=flock:delay_enter=1 qgen --version

# A shard that is missing, cut off, or no file: named before anything is written
$ damage() { rm -rf bad; cp -r src bad; "$@"; qgen quantize -m bad --to int8 --out new -q; echo exit $?; qgen quantize -m bad --to q8_0 --out new.gguf -q 2> /dev/null; echo exit $?; ls -d new new.gguf 2> /dev/null; }
> shard=bad/model-00003-of-00005.safetensors; damage rm $shard; damage ln -sf gone $shard; damage truncate -s 300000 $shard; damage truncate -s 100 $shard; damage truncate -s 0 $shard; damage bash -c "rm $shard; mkdir $shard"; true
  exit 3
  exit 3
  exit 3
  exit 3
  exit 3
  exit 3
  exit 3
  exit 3
  exit 3
  exit 3
  exit 3
  exit 3
stderr:
  qgen: bad/model.safetensors.index.json: names a file that is missing: model-00003-of-00005.safetensors
  hint: * (glob)
  qgen: bad/model.safetensors.index.json: names a file that is missing: model-00003-of-00005.safetensors
  hint: * (glob)
  qgen: bad/model-00003-of-00005.safetensors: truncated: * (glob)
  hint: * (glob)
  qgen: bad/model-00003-of-00005.safetensors: truncated header * (glob)
  hint: * (glob)
  qgen: bad/model-00003-of-00005.safetensors: too short for a safetensors file * (glob)
  hint: * (glob)
  qgen: bad/model-00003-of-00005.safetensors: not a regular file
$ rm -rf bad; cp -r src bad; chmod 000 bad/model-00003-of-00005.safetensors; test $(id -u) != 0 || user="setpriv --reuid=65534 --clear-groups --"; mkdir -m 777 open; $user qgen quantize -m bad --to int8 --out open/new -q
stderr: qgen: bad/model-00003-of-00005.safetensors: cannot open: Permission denied
exit: 3
needs: chmod 755 $TMP && { test $(id -u) != 0 || setpriv --reuid=65534 --clear-groups -- qgen --version; }

# A shard that is another one when --resume goes on: refused, also where its size is the same; as it was, it is taken
$ rm -rf bad; cp -rp src bad; (ulimit -f 400; qgen quantize -m bad --to int8 --out resumed -q 2> /dev/null); mkdir kept; cp -p bad/*3-of* kept; printf x | dd of=bad/model-00003-of-00005.safetensors bs=1 seek=90000 conv=notrunc status=none; qgen quantize -m bad --to int8 --out resumed -q --resume
stderr:
  qgen: --resume: resumed was begun from another model or with other options
  hint: resumed/INCOMPLETE.qgen.json says which; --force begins again
exit: 2
$ truncate -s 300000 bad/model-00003-of-00005.safetensors; qgen quantize -m bad --to int8 --out resumed -q --resume
stderr:
  qgen: bad/model-00003-of-00005.safetensors: truncated: * (glob)
  hint: * (glob)
exit: 3
$ rm bad/model-00003-of-00005.safetensors; qgen quantize -m bad --to int8 --out resumed -q --resume
stderr:
  qgen: bad/model.safetensors.index.json: names a file that is missing: model-00003-of-00005.safetensors
  hint: * (glob)
exit: 3
$ cp -p kept/* bad; qgen quantize -m bad --to int8 --out resumed -q --resume && diff -r whole resumed && echo same
  same

# A shard that is cut off in the midst of a run, or changes in its place: an error, and the folder stays marked
$ python3 faults.py meanwhile cut
  ended with 3
  qgen: */changing/model-00005-of-00005.safetensors: changed while it was read (glob)
  hint: begin again once it no longer changes (--force)
  marked
$ python3 faults.py meanwhile change
  ended with 3
  qgen: */changing/model-00005-of-00005.safetensors: changed while it was read (glob)
  hint: begin again once it no longer changes (--force)
  marked

# A folder that cannot be made or written in
$ touch way; for out in way way/new /dev/full /proc/new; do qgen quantize -m src --to int8 --out $out -q; echo exit $?; done
  exit 2
  exit 1
  exit 2
  exit 1
stderr:
  qgen: --out way: not a folder
  qgen: --out way/new: Not a directory
  qgen: --out /dev/full: not a folder
  qgen: --out /proc/new: No such file or directory
$ for out in way/new.gguf nowhere/new.gguf /proc/new.gguf; do qgen quantize -m src --to q8_0 --out $out -q; echo exit $?; done; qgen quantize -m src --to q8_0 --out /dev/full -q --force
  exit 1
  exit 1
  exit 1
stderr:
  qgen: way/new.gguf: cannot write: Not a directory
  qgen: nowhere/new.gguf: cannot write: No such file or directory
  qgen: /proc/new.gguf: cannot write: No such file or directory
  qgen: /dev/full: cannot write: a pipe or a device (expected a file)
exit: 1
$ mkdir -m 555 read; test $(id -u) != 0 || user="setpriv --reuid=65534 --clear-groups --"; for out in read read/new; do $user qgen quantize -m src --to int8 --out $out -q; echo exit $?; done; $user qgen quantize -m src --to q8_0 --out read/new.gguf -q; echo exit $?; ls -A read
  exit 1
  exit 1
  exit 1
stderr:
  qgen: read/INCOMPLETE.qgen.json: cannot write: Permission denied
  qgen: --out read/new: Permission denied
  qgen: read/new.gguf: cannot write: Permission denied
needs: chmod 755 $TMP && { test $(id -u) != 0 || setpriv --reuid=65534 --clear-groups -- qgen --version; }
$ unshare -rm bash -c 'mkdir -p room && mount -t tmpfs -o ro none room; for out in room room/new; do qgen quantize -m src --to int8 --out $out -q; echo exit $?; done; qgen quantize -m src --to q8_0 --out room/new.gguf -q; echo exit $?'
  exit 1
  exit 1
  exit 1
stderr:
  qgen: room/INCOMPLETE.qgen.json: cannot write: Read-only file system
  qgen: --out room/new: Read-only file system
  qgen: room/new.gguf: cannot write: Read-only file system
needs: unshare -rm mount -t tmpfs none /mnt

# A GGUF file that is killed has no name and leaves nothing; the next run writes it
$ python3 faults.py kills_of_file
  7 kills
needs: python3 -c 'import os; os.open(".", os.O_TMPFILE | os.O_WRONLY)'
# With --force the file that is there stays until the new one is complete
$ python3 faults.py kills_of_file --force
  5 kills

# A GGUF file beyond a limit never has its name without its mark
$ for link in 1 2 3; do
>   rm -f fails.gguf*; strace -f -qq -o /dev/null -e trace=linkat -e inject=linkat:signal=KILL:when=$link qgen quantize -m src --to q8_0 --mode percentile --percentile 1 --out fails.gguf -q
>   if test -e fails.gguf && ! test -e fails.gguf.FAILED.qgen.json; then echo "killed at link $link: no mark"; fi
> done 2> /dev/null; ls fails.gguf*
  fails.gguf
  fails.gguf.FAILED.qgen.json
needs: strace -f -qq -o /dev/null -e trace=linkat qgen --version

# One core writes what all of them write
$ core=$(python3 -c 'import os; print(min(os.sched_getaffinity(0)))'); for format in "int8 --mode mse" fp8 int8-tensor mxfp8 q8_0; do rm -rf one all; taskset -c $core qgen quantize -m src --to $format --out one -q && qgen quantize -m src --to $format --out all -q && diff -r one all && echo same; done | uniq -c
        5 same
needs: command -v taskset && test $(nproc) -gt 1

# After all that the model is what it was
$ cksum src/* | cmp - model.cksum && ls src | wc -l
  8
