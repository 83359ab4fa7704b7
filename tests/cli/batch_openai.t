# OpenAI's batch form in `qgen --batch`: a line with "custom_id", "url" and "body" gets the line that their Batch API writes,
# with the response of /v1/chat/completions or /v1/completions.

$ python3 $ROOT/tests/cli/scripted_model.py thinks "<think>" "hm" "</think>" "Good " "night." && printf '{%% for m in messages %%}[{{ m.role }}] {{ m.content }}{%% endfor %%}:' > thinks/chat_template.jinja
file: chat.jsonl
  {"custom_id": "a", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "any", "messages": [{"role": "system", "content": "Be"}, {"role": "user", "content": "Hi"}]}}
  {"custom_id": "b", "method": "POST", "url": "/v1/chat/completions", "body": {"model": "any", "messages": [{"role": "user", "content": "Hi"}], "max_completion_tokens": 4, "logprobs": true, "top_logprobs": 2}}
  {"custom_id": "c", "method": "POST", "url": "/v1/completions", "body": {"model": "any", "prompt": "Hi"}}

# Chat completions, and a completion that continues its prompt without the template
$ qgen -m thinks --batch chat.jsonl
jsonl: stdout schemas/batch-openai.schema.json
where: [a["custom_id"] for a in it] == ["a", "b", "c"] and [a["id"] for a in it] == ["batch_req_1", "batch_req_2", "batch_req_3"]
where: all(a["error"] is None and a["response"]["status_code"] == 200 for a in it)
where: it[0]["response"]["body"]["choices"][0]["message"] == {"role": "assistant", "content": "Good night.", "refusal": None, "reasoning_content": "hm"}
where: it[0]["response"]["body"]["choices"][0]["finish_reason"] == "stop" and it[0]["response"]["body"]["object"] == "chat.completion"
where: it[0]["response"]["body"]["usage"] == {"prompt_tokens": len("[system] Be[user] Hi:"), "completion_tokens": 5, "total_tokens": len("[system] Be[user] Hi:") + 5, "completion_tokens_details": {"reasoning_tokens": it[0]["response"]["body"]["usage"]["completion_tokens_details"]["reasoning_tokens"]}}
where: it[1]["response"]["body"]["choices"][0]["finish_reason"] == "length" and it[1]["response"]["body"]["choices"][0]["message"]["content"] == "Good "
where: [t["token"] for t in it[1]["response"]["body"]["choices"][0]["logprobs"]["content"]] == ["<think>", "hm", "</think>", "Good "]
where: all(len(t["top_logprobs"]) == 2 and t["top_logprobs"][0]["token"] == t["token"] and bytes(t["bytes"]).decode() == t["token"] for t in it[1]["response"]["body"]["choices"][0]["logprobs"]["content"])
where: it[2]["response"]["body"]["object"] == "text_completion" and it[2]["response"]["body"]["choices"][0]["text"] == "<think>hm</think>Good night."
where: it[2]["response"]["body"]["usage"]["prompt_tokens"] == len("Hi") + 1

# Their clients read it
$ qgen -m thinks --batch chat.jsonl | python3 -c '
> import json, sys
> for line in sys.stdin:
>     body = json.loads(line)["response"]["body"]
>     print(body["choices"][0].get("message", body["choices"][0]).get("content", "-"), body["model"])'
  Good night. thinks
  Good  thinks
  - thinks

# What changes nothing is understood; the effort says whether it thinks
$ printf 'x{{ enable_thinking }}' > thinks/chat_template.jinja; printf '%s\n' '{"custom_id": "1", "url": "/v1/chat/completions", "body": {"messages": [{"role": "user", "content": "x"}], "response_format": {"type": "text"}, "tools": [], "tool_choice": "none", "parallel_tool_calls": false, "n": 1, "stream": false, "stream_options": null, "user": "u", "metadata": {}, "store": false, "modalities": ["text"], "service_tier": "auto"}}' '{"custom_id": "2", "url": "/v1/chat/completions", "body": {"messages": [{"role": "user", "content": "x"}], "reasoning_effort": "none", "max_tokens": 0}}' '{"custom_id": "3", "url": "/v1/chat/completions", "body": {"messages": [{"role": "user", "content": "x"}], "reasoning_effort": "low", "max_tokens": 0}}' '{"prompt": "x", "model": "m", "chat_template_kwargs": {"enable_thinking": true}, "max_tokens": 0}' | qgen -m thinks --batch - | python3 -c '
> import json, sys
> for line in sys.stdin:
>     a = json.loads(line)
>     print(a.get("prompt_tokens") or a["response"]["body"]["usage"]["prompt_tokens"])'
  1
  6
  5
  5

# Other things are refused by line and key, and the run goes on
$ chat='"messages": [{"role": "user", "content": "x"}]'; printf '%s\n' "{\"custom_id\": 1, \"body\": {$chat, \"response_format\": {\"type\": \"json_object\"}}}" "{\"custom_id\": 2, \"body\": {$chat, \"tools\": [{\"type\": \"function\"}]}}" "{\"custom_id\": 3, \"body\": {$chat, \"reasoning_effort\": \"much\"}}" "{\"custom_id\": 4, \"body\": {$chat, \"top_p\": 7}}" "{\"custom_id\": 5, \"url\": \"/v1/embeddings\", \"body\": {\"input\": \"x\"}}" "{\"custom_id\": 6, \"body\": {$chat, \"n\": 3}}" "{\"custom_id\": 7, \"body\": {$chat, \"promt\": 1}}" "{\"custom_id\": 8, \"url\": \"/v1/completions\", \"body\": {$chat}}" "{\"custom_id\": 9, \"body\": {$chat, \"max_tokens\": 1}}" > bad.jsonl

$ qgen -m thinks --batch bad.jsonl
jsonl: stdout schemas/batch-openai.schema.json
stderr:
  qgen: 8 of 9 lines failed
  hint: the first: line 1: body.response_format.type: "json_object" is not supported (expected "text")
exit: 1
where: [a["response"]["status_code"] for a in it] == [400] * 8 + [200]
where: [a["custom_id"] for a in it] == list(range(1, 10)) and all(a["error"] is None for a in it)
where: all(a["response"]["body"]["error"]["message"].startswith(f"line {i}: ") for i, a in enumerate(it[:8], 1))
where: all(key in a["response"]["body"]["error"]["message"] for key, a in zip(["body.response_format.type", "body.tools", "body.reasoning_effort", "body.top_p: 7 is out of range (expected 0 to 1)", "url", "body.n", "body.promt: unknown member (did you mean prompt?)", "body"], it))

# Ids come back as they came
$ printf '{"custom_id": %s, "body": {"prompt": "x", "max_tokens": 0}}\n' '"a\u00e9\/"' 1.50 '{"b": [1, 2]}' null | qgen -m thinks --batch - | grep -o '"custom_id":.*,"response"'
  "custom_id":"a\u00e9\/","response"
  "custom_id":1.50,"response"
  "custom_id":{"b": [1, 2]},"response"
  "custom_id":null,"response"

# Seeds of 64 bits
$ printf '{"prompt": "x", "seed": 18446744073709551615, "max_tokens": 1, "raw": true}\n' | qgen -m $MODEL --batch - | grep -o '"seed":[0-9]*'
  "seed":18446744073709551615

# Completion's log-probabilities
$ printf '{"custom_id": "x", "url": "/v1/completions", "body": {"prompt": "Once upon a", "max_tokens": 3, "logprobs": 2}}\n' | qgen -m $MODEL --batch -
jsonl: stdout schemas/batch-openai.schema.json
where: it[0]["response"]["body"]["choices"][0]["logprobs"]["tokens"] == [" time", ",", " there"]
where: it[0]["response"]["body"]["choices"][0]["logprobs"]["text_offset"] == [0, 5, 6]
where: it[0]["response"]["body"]["choices"][0]["text"] == " time, there"

# A line that is no JSON is answered as the line before it; one in our own form as that wants it
$ printf '%s\n' '{"custom_id": "a", "body": {"prompt": "Once", "max_tokens": 1}}' oops '[]' '{"prompt": "Once", "max_tokens": 1}' oops | qgen -m $MODEL --batch - 2> errors
jsonl: stdout
exit: 1
where: [("response" in line) for line in it] == [True, True, True, False, False]
where: it[1]["id"] == "batch_req_2" and it[1]["custom_id"] is None and it[1]["response"]["status_code"] == 400

# An answer that is all thinking is not whole
$ python3 $ROOT/tests/cli/scripted_model.py ponders "<think>" "Hm" && printf '{{ messages[0].content }}' | tee ponders/chat_template.jinja > thinks/chat_template.jinja; for model in ponders thinks; do echo '{"custom_id": 1, "body": {"messages": [{"role": "user", "content": "x"}]}}' | qgen -m $model --batch -; done
jsonl: stdout schemas/batch-openai.schema.json
stderr: qgen: warning: 1 of 1 answers are cut short, their lines say how ("cut_short", "finish_reason")
where: [a["response"]["body"]["choices"][0]["finish_reason"] for a in it] == ["length", "stop"]
where: [a["response"]["body"]["choices"][0]["message"]["content"] for a in it] == ["", "Good night."]
