#!/usr/bin/env python3
"""Compare `qgen tokens` with the vectors that llama.cpp keeps beside its vocabularies.

    python tools/ggml_vocab_check.py LLAMA_CPP [--qgen build/qgen]

LLAMA_CPP is a checkout of llama.cpp. Of each models/ggml-vocab-*.gguf that has texts (.inp) and the ids that the model's
own tokenizer gives for them (.out), one line: how many texts agree, or why the file is refused. Exit code 1 where a text
differs. llama.cpp does not normalize (the ids of qwen35 are its own): texts in decomposed characters are only counted.
"""

import argparse
import json
import subprocess
import sys
import unicodedata
from pathlib import Path

SEPARATOR = "\n__ggml_vocab_test__\n"


def ids_of(qgen, vocabulary, text):
    # One newline at the end of standard input is no part of the text.
    command = [qgen, "tokens", "--model", vocabulary, "--json", "-"]
    return subprocess.run(command, input=text + "\n", capture_output=True, text=True)


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("llama_cpp", type=Path)
    parser.add_argument("--qgen", default="build/qgen")
    options = parser.parse_args()
    failed = False
    for vocabulary in sorted((options.llama_cpp / "models").glob("ggml-vocab-*.gguf")):
        texts, ids = (vocabulary.with_name(vocabulary.name + end) for end in (".inp", ".out"))
        if not texts.exists():
            continue
        right, decomposed, wrong, problem = 0, 0, [], ""
        cases = texts.read_bytes().decode().split(SEPARATOR)
        answers = ids.read_text().rstrip("\n").split("\n")
        if len(cases) != len(answers):
            problem, failed = f"{len(cases)} texts, but ids of {len(answers)}", True
        frame = []  # vectors have no beginning-of-text token
        for text, line in zip(["", *cases], ["", *answers]):
            result = ids_of(options.qgen, vocabulary, text)
            if result.returncode != 0:
                problem = result.stderr.split("\n")[0]
                break
            found = json.loads(result.stdout)["ids"]
            expected = [int(word) for word in line.split()]
            if not text:
                frame = found
            elif found == frame + expected:
                right += 1
            elif not unicodedata.is_normalized("NFC", text):
                decomposed += 1
            else:
                wrong.append((text, expected, found))
        print(f"{vocabulary.name:32} {problem or f'{right} agree, {len(wrong)} differ, {decomposed} not normalized'}")
        for text, expected, found in wrong:
            failed = True
            print(f"  {text!r}\n    expected {expected}\n    found    {found}")
    sys.exit(failed)


if __name__ == "__main__":
    main()
