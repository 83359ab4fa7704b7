# How a model may be called: folders and files, names in the Hugging Face cache with all that belongs to them, and what is
# said where nothing of that name is there.

$ commit=0123456789abcdef0123456789abcdef01234567; for name in org--stories org--stories-w8a8 other--story; do repo=.cache/huggingface/hub/models--$name; mkdir -p $repo/refs $repo/snapshots/$commit && printf $commit > $repo/refs/main && cp $MODEL/* $repo/snapshots/$commit/; done

# By a bare name, in any case, and by the address of its page
$ for name in stories Stories-W8A8 org/stories https://huggingface.co/org/stories https://huggingface.co/org/stories/tree/main hf.co/org/stories .cache/huggingface/hub/models--org--stories; do qgen inspect $name --json | grep -o '"model":"[^"]*"'; done
  "model":"org/stories"
  "model":"org/stories-w8a8"
  "model":"org/stories"
  "model":"org/stories"
  "model":"org/stories"
  "model":"org/stories"
  "model":"org/stories"

# A bare name that several publishers use
$ cp -r .cache/huggingface/hub/models--org--stories .cache/huggingface/hub/models--third--Stories; qgen inspect STORIES
stderr:
  qgen: STORIES: several models in the Hugging Face cache have this name (expected one of org/stories, third/Stories)
  hint: -m org/stories
exit: 3

# Near misses are named, with what fetches what was really meant
$ rm -r .cache/huggingface/hub/models--third--Stories; qgen -m org/storeis -p x
stderr:
  qgen: org/storeis: no such file or folder, and not in the Hugging Face cache ($TMP/.cache/huggingface/hub)
  hint: did you mean org/stories? Otherwise: hf download org/storeis
exit: 3
within: 100 ms

$ qgen -m org/stories-FP8 -p x
stderr:
  qgen: org/stories-FP8: no such file or folder, and not in the Hugging Face cache ($TMP/.cache/huggingface/hub)
  hint: did you mean org/stories* Otherwise: hf download org/stories-FP8 (glob)
exit: 3

# In folders too
$ qgen -m models/storys260K-FP8 -p x
stderr:
  qgen: models/storys260K-FP8: no such file or folder, and not in the Hugging Face cache ($TMP/.cache/huggingface/hub)
  hint: did you mean models/stories260K-FP8?
exit: 3

# What a GGUF repository is fetched with
$ for name in org/absent-GGUF org/absent:Q8_0 https://huggingface.co/org/absent/blob/main/a-q8_0.gguf org/absent@v1:Q8_0; do qgen -m $name -p x 2>&1 | tail -n 1; done
  hint: hf download org/absent-GGUF --include "*Q8_0*"
  hint: hf download org/absent --include "*Q8_0*"
  hint: hf download org/absent a-q8_0.gguf
  hint: hf download org/absent --revision v1 --include "*Q8_0*"
exit: 3

# Other addresses
$ qgen -m https://example.com/org/name -p x
stderr:
  qgen: https://example.com/org/name: not the address of a model on huggingface.co
  hint: `hf download ORG/NAME` fetches models from there; -m ORG/NAME names them
exit: 3

# A variant of what has none
$ qgen -m org/stories:Q8_0 -p x
stderr:
  qgen: org/stories: no GGUF files (found safetensors)
  hint: -m org/stories
exit: 3

# A folder with several models lists them, whatever they are
$ mkdir many && cp -r $MODEL $INT8 many/ && qgen -m many -p x
stderr:
  qgen: many: several models (expected one, or one in Q8_0):
    stories260K-FP8
    stories260K-w8a8
  hint: name one of them: many/stories260K-FP8
exit: 3

# With one it is that one
$ rm -r many/stories260K-w8a8; qgen -m many -p "Once upon a time" -n 1 --stats
  , (no-eol)
stderr:
  stories260K-FP8 · * (glob)
  ...

# GGUF files are known by what they begin with, not by their names
$ cp $SHARED/fixtures/gguf-q8_0-stories/*.gguf sha256-0123; qgen inspect sha256-0123 | head -n 1
  sha256-0123
needs: test -d "$SHARED/fixtures/gguf-q8_0-stories"

# The files of a repository with several: by a part of their names, by their own, by address
$ repo=.cache/huggingface/hub/models--org--some-GGUF commit=0123456789abcdef0123456789abcdef01234567; mkdir -p $repo/refs $repo/snapshots/$commit && printf $commit > $repo/refs/main && cp $SHARED/fixtures/gguf-q8_0-stories/*.gguf $repo/snapshots/$commit/some-Q8_0.gguf && cp $SHARED/fixtures/gguf-f16-stories/*.gguf $repo/snapshots/$commit/some-F16.gguf; for name in org/some-GGUF org/some-GGUF:Q8_0 some-gguf:f16 org/some-GGUF/some-F16.gguf https://huggingface.co/org/some-GGUF/blob/main/some-F16.gguf $repo/snapshots/$commit:F16; do qgen inspect $name --json | grep -oE '"(model|method)":"[^"]*"' | head -n 2 | tr '\n' ' '; done
  "model":"org/some-GGUF" "method":"int8 group 32" "model":"org/some-GGUF:Q8_0" "method":"int8 group 32" "model":"org/some-GGUF:f16" "method":"f16" "model":"org/some-GGUF/some-F16.gguf" "method":"f16" "model":"org/some-GGUF/some-F16.gguf" "method":"f16" "model":"0123456789abcdef0123456789abcdef01234567" "method":"f16"  (no-eol)
needs: test -d "$SHARED/fixtures/gguf-f16-stories"

$ qgen -m org/some-GGUF:Q4_K_M -p x
stderr:
  qgen: org/some-GGUF:Q4_K_M: several GGUF models (expected one with Q4_K_M in its name):
    some-F16.gguf
    some-Q8_0.gguf
  hint: hf download org/some-GGUF --include "*Q4_K_M*"
exit: 3
needs: test -d "$SHARED/fixtures/gguf-f16-stories"
