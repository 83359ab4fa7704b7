#!/usr/bin/env python3
"""Compares the program with Hugging Face transformers on a real chat model, SmolLM2-135M-Instruct (`make smollm2` brings it).

    tests/cli/smollm2_check.py QGEN [--quick] [--models FOLDER] [BF16|FP8|INT8|Q8_0 ...]

The expected answers are in $QGEN_SHARED/fixtures-smollm2 (default ../shared): weights dequantized exactly, arithmetic in f32.
Each form that is there is compared in three modes:

    exact     f32 activations and cache: next-token scores at 227 positions, perplexity, 9 greedy answers by the scores of the
              whole answer (prefill), and greedy answers token by token (decode)
    native    this processor's best instructions, f32 cache: the scores
    default   no options: the scores, perplexity, greedy answers token by token

and so are token ids and rendered chats. --quick does a part of each, for slow builds. The exit code is 77, which ctest takes
for skipped, where no model or no answers are there.
"""

import argparse
import json
import math
import os
import subprocess
import sys
import tempfile
import time
from array import array
from dataclasses import dataclass
from pathlib import Path

FORMS = ("BF16", "FP8", "INT8", "Q8_0")
MODEL_ERROR, SKIPPED = 3, 77  # exit codes: the program's, ctest's
WINDOW = 512  # tokens, of perplexity


@dataclass
class Limits:
    """The largest differences that pass."""

    logprob: float  # of the ten likeliest tokens at each position; also of log(sum(exp(scores)))
    mean: float  # of the same log-probabilities
    perplexity: float  # relative
    margin: float  # a greedy token counts where the expected best score leads by more than this


# Measured over the forms on AMD EPYC (Zen 4), with every instruction set that it has, in the order of the fields:
EXACT = Limits(1e-3, 1e-4, 1e-4, 1e-3)  # 1.6e-4, 1.1e-5, 8e-7, 1.4e-4
# Activations are 16-bit integers against 8-bit integers, the cache f32 or f16: 3.6e-2, 2.3e-3, 4.3e-5, 1.7e-2
INTEGER = Limits(1e-1, 7e-3, 2e-4, 5e-2)
# Activations are bf16 in batches of 128 tokens and more, the cache f32 or f16: 1.6e-1, 6.8e-3, 5.8e-4, -
BF16 = Limits(5e-1, 2e-2, 2e-3, 2e-1)


class Program:
    """The program with one model and fixed options."""

    # The environment twins of the options would change the answers.
    CLEAN = {name: value for name, value in os.environ.items() if not name.startswith("QGEN_")}

    def __init__(self, qgen, model, *options):
        self.qgen, self.model, self.options = qgen, model, options

    def run(self, *command, text=""):
        try:
            return subprocess.run(command, input=text, capture_output=True, encoding="utf-8", env=self.CLEAN)
        except OSError as error:
            sys.exit(f"smollm2_check: {self.qgen}: {error.strerror}\nhint: build it with make")

    def output(self, *command, text=""):
        done = self.run(*command, text=text)
        if done.returncode != 0:
            sys.exit(f"smollm2_check: {' '.join(command)[:300]}: exit code {done.returncode}\n{done.stderr}")
        return done

    def tokens(self, *options, text=""):
        # One newline at the end of standard input is none of the text.
        return self.output(self.qgen, "tokens", "-m", self.model, *options, text=text + "\n").stdout

    def score(self, ids, *more):
        return [self.qgen, "score", "-m", self.model, *self.options, "--tokens", ",".join(map(str, ids)), *more]

    def refusal(self):
        """Why the program does not support the model, or None."""
        done = self.run(*self.score([1]))
        unsupported = done.returncode == MODEL_ERROR and "not supported" in done.stderr
        return done.stderr.strip() if unsupported else None

    def logprobs(self, ids):
        report = json.loads(self.output(*self.score(ids, "--json")).stdout)
        return [token["logprob"] for token in report["tokens"]]

    def scores(self, ids):
        """The scores of the whole vocabulary after each of the ids, one array each."""
        with tempfile.NamedTemporaryFile() as file:
            self.output(*self.score(ids, "--logits", file.name))
            values = array("f", Path(file.name).read_bytes())
        vocabulary = len(values) // len(ids)
        return [values[i : i + vocabulary] for i in range(0, len(values), vocabulary)]

    def answers(self, requests):
        """The greedy tokens that answer each request, with the end token."""
        lines = "".join(json.dumps(request) + "\n" for request in requests)
        command = (self.qgen, "-m", self.model, *self.options, "--batch", "-", "--temp", "0", "--logprobs", "1")
        answers = map(json.loads, self.output(*command, text=lines).stdout.splitlines())
        return [[step["chosen"]["id"] for step in answer["logprobs"]] for answer in answers]


class Check:
    """One form in one mode; collects what is wrong, and what to say about it."""

    def __init__(self, program, limits):
        self.program, self.limits, self.wrong, self.said = program, limits, [], []

    def within(self, what, difference, limit):
        if not abs(difference) <= limit:
            self.wrong.append(f"{what} differs by {difference:.2g} (expected at most {limit:g})")

    def positions(self, sequences):
        differences, sums, best, count = [], [], 0, 0
        for expected in sequences:
            for t, row in enumerate(self.program.scores(expected["ids"])):
                largest = max(row)
                logsumexp = largest + math.log(sum(math.exp(score - largest) for score in row))
                sums.append(abs(logsumexp - expected["logsumexp"][t]))
                pairs = zip(expected["top_ids"][t], expected["top_logprobs"][t])
                differences += [abs(row[token] - logsumexp - logprob) for token, logprob in pairs]
                same = row[expected["top_ids"][t][0]] == largest
                best += same
                count += 1
                if not same and expected["margin"][t] > self.limits.margin:
                    self.wrong.append(f"{expected['name']}: another token is the likeliest after position {t}")
        mean = sum(differences) / len(differences)
        self.within("a log-probability", max(differences), self.limits.logprob)
        self.within("a log of summed scores", max(sums), self.limits.logprob)
        self.within("the mean log-probability", mean, self.limits.mean)
        self.said.append(f"logprobs {max(differences):.1e} (mean {mean:.1e}), sums {max(sums):.1e}, best {best} of {count}")

    def perplexity(self, expected, ids, windows):
        """Each window starts with an empty cache; its first token is not scored."""
        nll, reference = [], []
        for w in range(windows):
            nll += [-logprob for logprob in self.program.logprobs(ids[w * WINDOW : (w + 1) * WINDOW])[1:]]
            reference += expected["nll"][w]
        found = math.exp(sum(nll) / len(nll))
        wanted = expected["ppl"] if len(nll) == expected["scored"] else math.exp(sum(reference) / len(reference))
        self.within("the perplexity, relatively,", found / wanted - 1, self.limits.perplexity)
        self.said.append(f"perplexity {found:.4f} ({found / wanted - 1:+.1e})")

    def forced(self, answers):
        """The best token at every step of the expected answers, from the scores of prompt and answer in one go."""
        counted = 0
        for expected in answers:
            rows = self.program.scores(expected["ids"] + expected["next"][:-1])[len(expected["ids"]) - 1 :]
            for step, (row, token) in enumerate(zip(rows, expected["next"])):
                if expected["margin"][step] > self.limits.margin:
                    counted += 1
                    if row[token] != max(row):
                        self.wrong.append(f"{expected['name']}: step {step} chooses {row.index(max(row))}, not {token}")
        self.said.append(f"greedy {counted} steps")

    def generated(self, answers, chats, limit):
        """The same answers as the program gives them; they count up to the first narrow margin or the end token."""
        requests, expected = [], []
        for answer in answers:
            narrow = next((i for i, margin in enumerate(answer["margin"]) if margin <= self.limits.margin), limit)
            end = limit if answer["eos_at"] is None else answer["eos_at"] + 1
            expected.append(answer["next"][: min(narrow, end, limit)])
            chat = chats.get(answer["prompt"])
            request = {"messages": chat} if chat else {"prompt": answer["prompt"], "raw": True}
            requests.append(request | {"max_tokens": max(len(expected[-1]), 1)})
        for answer, wanted, found in zip(answers, expected, self.program.answers(requests)):
            if found[: len(wanted)] != wanted:
                self.wrong.append(f"{answer['name']}: answers {found}, not {wanted}")
        self.said.append(f"generated {sum(map(len, expected))} tokens")

    def texts(self, expected):
        for text in expected["texts"]:
            if list(map(int, self.program.tokens(text=text["text"]).split())) != text["ids"]:
                self.wrong.append(f"{text['text']!r}: other token ids")
        for chat in expected["chat"]:
            messages = json.dumps(chat["messages"])
            if self.program.tokens("--messages", "-", "--render", text=messages) != chat["rendered"]:
                self.wrong.append(f"{chat['messages']}: rendered differently")
            if list(map(int, self.program.tokens("--messages", "-", text=messages).split())) != chat["ids"]:
                self.wrong.append(f"{chat['messages']}: other token ids")
        self.said.append(f"{len(expected['texts'])} texts, {len(expected['chat'])} chats")


def check_form(form, qgen, model, shared, quick):
    """Prints a line for each mode; True where all is well."""
    expected = json.loads((shared / "fixtures-smollm2" / form.lower() / "expected.json").read_text(encoding="utf-8"))
    texts = json.loads((shared / "fixtures-smollm2/tokens.json").read_text(encoding="utf-8"))
    chats = {chat["rendered"]: chat["messages"] for chat in texts["chat"]}
    raw = [answer for answer in expected["greedy"] if answer["prompt"] not in chats]
    some = raw[:2] + [answer for answer in expected["greedy"] if answer["prompt"] in chats][:2]
    answers, limit, windows = (some, 16, 1) if quick else (expected["greedy"], 64, 4)
    with open(shared / "data/text/wiki.test.raw", encoding="utf-8") as wikitext:
        start = wikitext.read(40000)  # three times what 4 windows need
    ids = list(map(int, Program(qgen, model).tokens(text=start).split()))

    positions = ("positions", expected["positions"])
    modes = [
        ("text", [], EXACT, ("texts", texts)),
        (
            *("exact", ["--kv", "f32", "--activations", "f32"], EXACT),
            *(positions, ("perplexity", expected["perplexity"], ids, windows)),
            *(("forced", answers), ("generated", answers, chats, limit)),
        ),
        ("native", ["--kv", "f32", "--device", "cpu"], BF16 if form in ("BF16", "FP8") else INTEGER, positions),
        (
            *("default", [], BF16 if form in ("BF16", "FP8") else INTEGER, positions),
            # Rounding moves the perplexity of fewer tokens by more.
            *(("perplexity", expected["perplexity"], ids, 2), ("generated", some, chats, limit)),
        ),
    ]
    good = True
    for mode, options, limits, *parts in modes:
        begin = time.monotonic()
        check = Check(Program(qgen, model, *options), limits)
        for part, *arguments in parts:
            getattr(check, part)(*arguments)
        print(f"{form} {mode}: {', '.join(check.said)} ({time.monotonic() - begin:.0f} s)")
        for wrong in check.wrong:
            print(f"{form} {mode}: FAILED: {wrong}", flush=True)
        good = good and not check.wrong
    return good


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("qgen")
    parser.add_argument("forms", nargs="*", default=FORMS, metavar="form")
    parser.add_argument("--models", default="models", type=Path)
    parser.add_argument("--quick", action="store_true")
    options = parser.parse_intermixed_args()
    shared = Path(os.environ.get("QGEN_SHARED") or "../shared")
    if not (shared / "fixtures-smollm2").is_dir():
        print(f"smollm2_check: skipped: {shared} has no fixtures-smollm2")
        sys.exit(SKIPPED)
    checked = []
    for form in options.forms:
        model = options.models / f"SmolLM2-135M-Instruct-{form}"
        if not model.is_dir():
            print(f"{form}: not present")
            continue
        refusal = Program(options.qgen, str(model)).refusal()
        if refusal:
            print(f"{form}: {refusal}")
            continue
        checked.append(check_form(form, options.qgen, str(model), shared, options.quick))
    if not checked:
        print("smollm2_check: skipped: no model (make smollm2 brings it)")
        sys.exit(SKIPPED)
    sys.exit(0 if all(checked) else 1)


if __name__ == "__main__":
    main()
