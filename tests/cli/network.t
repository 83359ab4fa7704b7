# The network is never used: a missing org/name prints the `hf download` line, one in the Hugging Face cache is found.

# The program cannot even ask for a connection
$ nm -D --undefined-only $QGEN | grep -wE 'socket|connect|getaddrinfo|gethostbyname|sendto|recvfrom'
exit: 1
needs: command -v nm

# Where there is no network at all, nothing changes
$ unshare -rn qgen -m $MODEL -p "Once upon a time" -n 1
  , (no-eol)
needs: unshare -rn true

# A model that is not there prints how to fetch it
$ qgen -m org/absent -p x
stderr:
  qgen: org/absent: no such file or folder, and not in the Hugging Face cache ($TMP/.cache/huggingface/hub)
  hint: hf download org/absent
exit: 3
within: 100 ms

# With a revision
$ qgen -m org/absent@v1.0 -p x
stderr:
  qgen: org/absent@v1.0: no such file or folder, and not in the Hugging Face cache ($TMP/.cache/huggingface/hub)
  hint: hf download org/absent --revision v1.0
exit: 3

# The other commands say the same
$ for command in score tokens; do qgen $command -m org/absent < /dev/null; done 2>&1 | grep -c 'hint: hf download org/absent'
  2
exit: 3

# A name that cannot be one is only missing
$ qgen -m ./nowhere -p x
stderr:
  qgen: ./nowhere: no such file or folder
  ...
exit: 3

# A model in the cache, as the hub's own program leaves it
$ repo=.cache/huggingface/hub/models--org--stories commit=0123456789abcdef0123456789abcdef01234567
> mkdir -p $repo/refs $repo/blobs $repo/snapshots/$commit && printf $commit > $repo/refs/main && printf $commit > $repo/refs/v1
> for file in $MODEL/*; do cp $file $repo/blobs/ && ln -s ../../blobs/${file##*/} $repo/snapshots/$commit/; done

# Found by its name
$ qgen -m org/stories -p "Once upon a time" -n 1
  , (no-eol)

# By revision and by commit
$ for revision in main v1 0123456789abcdef0123456789abcdef01234567; do qgen -m org/stories@$revision -p "Once upon a time" -n 1; echo; done
  ,
  ,
  ,

# Another revision is not there
$ qgen -m org/stories@v2 -p x
stderr:
  qgen: org/stories: revision v2 is not in the Hugging Face cache
  hint: hf download org/stories --revision v2
exit: 3

# Where the cache is, in the order of the hub's own variables
$ mv .cache/huggingface elsewhere; HF_HOME=elsewhere qgen -m org/stories -p "Once upon a time" -n 1; HF_HOME=nowhere HF_HUB_CACHE=elsewhere/hub qgen -m org/stories -p "Once upon a time" -n 1
  ,, (no-eol)

$ mkdir xdg && mv elsewhere xdg/huggingface; XDG_CACHE_HOME=xdg qgen -m org/stories -p "Once upon a time" -n 1
  , (no-eol)

# A download that broke off names what is missing
$ rm xdg/huggingface/hub/models--org--stories/snapshots/*/config.json; XDG_CACHE_HOME=xdg qgen -m org/stories -p x
stderr:
  qgen: org/stories: its snapshot in the Hugging Face cache has no config.json
  hint: hf download org/stories
exit: 3
