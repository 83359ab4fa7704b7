#!/usr/bin/env python3
"""Golden ids and texts from the real `tokenizers`, for the tests of src/tokenizer.

  tokenizer_oracle.py golden               writes tests/golden-tokenizer/ (one case file per component)
  tokenizer_oracle.py strings N [SEED]     writes N random Unicode strings as JSON lines to stdout
  tokenizer_oracle.py encode FOLDER        reads JSON lines, writes the ids of each (FOLDER/tokenizer.json)
"""

import json
import os
import pathlib
import random
import sys

os.environ["TOKENIZERS_PARALLELISM"] = "false"
from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers  # noqa: E402

ROOT = pathlib.Path(__file__).resolve().parent.parent
OUT = ROOT / "tests" / "golden-tokenizer"

CORPUS = [
    "The quick brown fox jumps over the lazy dog. Don't stop; we'll see 123 foxes, 45 dogs and 6 cats!",
    "In the beginning there was the word, and the word was with them. They're here, aren't they?",
    "na\u00efve caf\u00e9 r\u00e9sum\u00e9 \u00fcber stra\u00dfe \u4f60\u597d\u4e16\u754c \u3053\u3093\u306b\u3061\u306f \ud55c\uad6d\uc5b4 \u0440\u0443\u0441\u0441\u043a\u0438\u0439",
    "def f(x):\n    return x + 1\n\nprint(f(41))  # forty-two\n",
    "hello hello hello world world hello world, the the the then there these those",
]

FIXED_TEXTS = [
    "", " ", "  ", "   ", "\n", "\t", "a", " a", "a ", "  a  b  ", "Hello world", " Hello  World ", "hello<s>world",
    "<s>", "</s>", "<unk>", "[UNK] [CLS]", "a<s>b <s> c<s>", "x  <mask>  y", "foo<mask>bar", "word<w>word <w> <w>word",
    "The quick brown fox.", "don't can't we'll THEY'RE I'd 'tis", "\u0130stanbul \u00c9COLE \u00df \u1e9e \u03a3\u03af\u03c3\u03c5\u03c6\u03bf\u03c2",
    "e\u0301 \u00e9 a\u0323\u0302 \u1ead n\u0303o \u0301x", "\u1112\u1161\u11ab \ud55c \uac00\u11a8", "\uff21\uff22\uff23 \uff76\uff9e \ufb01n \u2460 \u00bd \u00b2",
    "\U0001f468\u200d\U0001f469\u200d\U0001f467\u200d\U0001f466 \U0001f1e9\U0001f1ea \U0001f44d\U0001f3fd \u2764\ufe0f", "a\u0000b", "\u200b\u200c\u200d\ufeff\u00ad", "\ufffd",
    "123 4567 \u0661\u0662\u0663 \u00bd \u2167 1,234.56", "a-b_c.d,e;f:g!h?i", "$100 + 5% = <x> ~ ^ | `y`", "\u00bfqu\u00e9? \u00a1no! \u201cquoted\u201d \u2014 \u2026",
    "\u4f60\u597d\u4e16\u754c\u3002 hello\u4e16\u754c", "\u3053\u3093\u306b\u3061\u306f\u30ab\u30bf\u30ab\u30ca", "\u2581under\u2581score\u2581 x", "a\u00a0b\u2003c\u3000d\u2028e\u0085f",
    "line1\nline2\r\nline3\n\n\n  line4\t\tx", "    def f():\n        pass", "aaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaaa",
    "<0x41><0x0A>", "Monday  DAY day", "The<s>the THE <S>", "\u0000\u0001\u0007\u007f\u009f", "x\u0345y\u0f71\u0f72", "unbelievable dogs there hellothere",
    "A.B. C", "...", "''", "a\u0300\u0301\u0302b", "\U00010400\U0001d400\U000e0001", "\u017f 'S 'K \u212a",
]


def random_strings(count, seed):
    r = random.Random(seed)
    chars = [
        lambda: chr(r.randrange(32, 127)), lambda: chr(r.randrange(97, 123)), lambda: chr(r.randrange(48, 58)),
        lambda: r.choice(" \n\t\r  "), lambda: chr(r.randrange(0xA0, 0x250)), lambda: chr(r.randrange(0x300, 0x370)),
        lambda: chr(r.randrange(0x370, 0x600)), lambda: chr(r.randrange(0x900, 0xE00)),
        lambda: chr(r.randrange(0x1100, 0x1200)), lambda: chr(r.randrange(0x2000, 0x2070)),
        lambda: chr(r.randrange(0x3040, 0x3100)), lambda: chr(r.randrange(0x4E00, 0x9FFF)),
        lambda: chr(r.randrange(0xAC00, 0xD7A4)), lambda: chr(r.randrange(0x1F300, 0x1F700)),
        lambda: r.choice("\u200d\ufe0f\u200c\u0000\ufeff\ufffd\u2581"),
        lambda: chr(r.choice([r.randrange(0, 0xD800), r.randrange(0xE000, 0x110000)])),
        lambda: r.choice(["'s", "'ll", "'RE", "don't", "<s>", "</s>", "<unk>", "<|im_start|>", "<|endoftext|>", "<mask>",
                          "<think>", "<0x41>", "\u2581", "123", "  ", "   ", "\n\n", "the", " hello", "\u017f", "\u212a"]),
    ]
    for _ in range(count):
        pools = r.sample(chars, r.choice([1, 2, 3, 5, 8]))
        yield "".join(r.choice(pools)() for _ in range(r.randrange(0, 40)))


def train(model, trainer, pre=None):
    tokenizer = Tokenizer(model)
    if pre is not None:
        tokenizer.pre_tokenizer = pre
    tokenizer.train_from_iterator(CORPUS * 3, trainer)
    return json.loads(tokenizer.to_str())["model"]


def make_models():
    ws = pre_tokenizers.WhitespaceSplit
    out = {}
    out["bytes"] = train(models.BPE(), trainers.BpeTrainer(vocab_size=420, show_progress=False,
                         initial_alphabet=pre_tokenizers.ByteLevel.alphabet()), pre_tokenizers.ByteLevel(add_prefix_space=False))
    out["chars"] = train(models.BPE(unk_token="<unk>"), trainers.BpeTrainer(vocab_size=220, show_progress=False,
                         special_tokens=["<unk>", "<s>", "</s>"]), pre_tokenizers.Metaspace())
    fallback = json.loads(json.dumps(out["chars"]))
    fallback["byte_fallback"] = True
    for b in range(256):
        fallback["vocab"][f"<0x{b:02X}>"] = len(fallback["vocab"])
    out["fallback"] = fallback
    out["suffix"] = train(models.BPE(unk_token="<unk>"), trainers.BpeTrainer(vocab_size=240, show_progress=False,
                          special_tokens=["<unk>"], end_of_word_suffix="</w>"), ws())
    out["prefix"] = train(models.BPE(unk_token="<unk>"), trainers.BpeTrainer(vocab_size=240, show_progress=False,
                          special_tokens=["<unk>"], continuing_subword_prefix="##"), ws())
    out["wordpiece"] = train(models.WordPiece(unk_token="[UNK]", max_input_chars_per_word=30), trainers.WordPieceTrainer(
                             vocab_size=260, show_progress=False, special_tokens=["[UNK]", "[CLS]", "[SEP]"]), ws())
    out["unigram"] = train(models.Unigram(), trainers.UnigramTrainer(vocab_size=200, show_progress=False,
                           special_tokens=["<unk>", "<s>"], unk_token="<unk>"), pre_tokenizers.Metaspace())
    bytes_unigram = json.loads(json.dumps(out["unigram"]))
    bytes_unigram["byte_fallback"] = True
    bytes_unigram["vocab"] += [[f"<0x{b:02X}>", -20.0] for b in range(256)]
    out["unigram-bytes"] = bytes_unigram
    return out


def token(content, i, **flags):
    base = {"id": i, "content": content, "single_word": False, "lstrip": False, "rstrip": False, "normalized": False,
            "special": False}
    base.update(flags)
    return base


def charsmap():
    """A SentencePiece map, from the library itself: its nmt_nfkc rules, as base64."""
    import base64
    import io
    import sentencepiece
    from sentencepiece import sentencepiece_model_pb2
    blob = io.BytesIO()
    sentencepiece.SentencePieceTrainer.train(sentence_iterator=iter(CORPUS * 5), model_writer=blob, vocab_size=120,
                                             normalization_rule_name="nmt_nfkc", hard_vocab_limit=False, minloglevel=2)
    proto = sentencepiece_model_pb2.ModelProto.FromString(blob.getvalue())
    return base64.b64encode(proto.normalizer_spec.precompiled_charsmap).decode()


def configurations():
    """name -> (model, the rest of tokenizer.json)."""
    out = {}

    def add(name, model, **rest):
        assert name not in out
        out[name] = (model, rest)

    byte_level = {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": True}
    byte_decoder = {"type": "ByteLevel", "add_prefix_space": True, "trim_offsets": True, "use_regex": True}
    metaspace = {"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": "always", "split": True}
    special = [token("<s>", 1, special=True), token("</s>", 2, special=True)]
    nasty = [token("<s>", 1, special=True), token("<mask>", 900, lstrip=True, rstrip=True, special=True),
             token("<w>", 901, single_word=True), token("day", 902, normalized=True), token("DAY ", 903),
             token("<", 904, rstrip=True), token("fox", 905, single_word=True, normalized=True, lstrip=True)]

    # Normalizers, before a byte-level model that shows every change.
    for form in ["NFC", "NFD", "NFKC", "NFKD", "Lowercase", "StripAccents", "Nmt"]:
        add("normalizer-" + form, "bytes", normalizer={"type": form}, pre_tokenizer=byte_level, decoder=byte_decoder)
    add("normalizer-NFD-StripAccents", "bytes", pre_tokenizer=byte_level, decoder=byte_decoder,
        normalizer={"type": "Sequence", "normalizers": [{"type": "NFD"}, {"type": "StripAccents"}, {"type": "Lowercase"}]})
    add("normalizer-ByteLevel", "bytes", normalizer={"type": "ByteLevel"}, decoder=byte_decoder)
    add("normalizer-Prepend", "bytes", normalizer={"type": "Prepend", "prepend": "\u2581x"}, pre_tokenizer=byte_level)
    for left in (False, True):
        for right in (False, True):
            add(f"normalizer-Strip-{left}-{right}", "bytes", pre_tokenizer=byte_level,
                normalizer={"type": "Strip", "strip_left": left, "strip_right": right})
    for name, pattern, content in [("string", {"String": "the"}, "THE!"), ("regex", {"Regex": " {2,}"}, " "),
                                   
                                   ("regex-class", {"Regex": "[\\d\\p{Han}&&[^13]]+"}, "#"), ("delete", {"Regex": "\\s+$"}, "")]:
        add("normalizer-Replace-" + name, "bytes", pre_tokenizer=byte_level,
            normalizer={"type": "Replace", "pattern": pattern, "content": content})
    # Not before ByteLevel, which `tokenizers` applies wrongly to text that begins with an insertion.
    for name, pattern in [("regex", {"Regex": "x*"}), ("string", {"String": ""})]:
        add(f"normalizer-Replace-{name}-empty", "chars", normalizer={"type": "Replace", "pattern": pattern, "content": "-"})
    for i, flags in enumerate([(True, True, None, True), (False, False, False, True), (True, False, True, False), (False, True, None, False)]):
        add(f"normalizer-Bert-{i}", "bytes", pre_tokenizer=byte_level, normalizer=dict(
            zip(["type", "clean_text", "handle_chinese_chars", "strip_accents", "lowercase"], ("BertNormalizer",) + flags)))
    add("normalizer-Precompiled", "bytes", pre_tokenizer=byte_level,
        normalizer={"type": "Precompiled", "precompiled_charsmap": "@CHARSMAP@"})

    # Pre-tokenizers, before a model that keeps what it does not know apart.
    for prefix in (False, True):
        for regex in (False, True):
            add(f"pre-ByteLevel-{prefix}-{regex}", "bytes", decoder=byte_decoder,
                pre_tokenizer={"type": "ByteLevel", "add_prefix_space": prefix, "trim_offsets": True, "use_regex": regex})
    for behavior in ["Removed", "Isolated", "MergedWithPrevious", "MergedWithNext", "Contiguous"]:
        for invert in (False, True):
            for kind, pattern in [("regex", {"Regex": "\\s+|[aeiou]"}), ("string", {"String": "e"}), ("empty", {"Regex": "(?=o)|x*"})]:
                add(f"pre-Split-{kind}-{behavior}-{invert}", "bytes", pre_tokenizer={"type": "Sequence", "pretokenizers": [
                    {"type": "Split", "pattern": pattern, "behavior": behavior, "invert": invert},
                    {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]})
        add(f"pre-Punctuation-{behavior}", "chars", pre_tokenizer={"type": "Punctuation", "behavior": behavior})
    for name, regex in [("qwen", "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"),
                        ("llama3", "(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"),
                        ("o200k", "[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"),
                        ("kimi", "[\\p{Han}]+|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]*[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}&&[^\\p{Han}]]+|\\p{N}{1,3}|\\s+"),
                        ("deepseek", "[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|[^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"),
                        ("cjk", "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"), ("classes", "\\w+|\\d|[\\W&&\\S]|\\h"), ("word", "\\b\\w|[[:punct:]]+|[^[:alpha:]]{2}+"),
                        ("lines", "^.|.$"), ("scripts", "\\p{Hiragana}+|\\p{Katakana}+|\\p{^Latin}|\\p{Letter}{,3}")]:
        add(f"pre-Split-{name}", "bytes", pre_tokenizer={"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": regex}, "behavior": "Isolated", "invert": False},
            {"type": "ByteLevel", "add_prefix_space": False, "trim_offsets": True, "use_regex": False}]})
    for individual in (False, True):
        add(f"pre-Digits-{individual}", "chars", pre_tokenizer={"type": "Digits", "individual_digits": individual})
    for name in ["Whitespace", "WhitespaceSplit", "BertPreTokenizer"]:
        add(f"pre-{name}", "chars", pre_tokenizer={"type": name})
    for scheme in ["first", "never", "always"]:
        for split in (False, True):
            add(f"pre-Metaspace-{scheme}-{split}", "chars", added_tokens=special,
                pre_tokenizer={"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": split},
                decoder={"type": "Metaspace", "replacement": "\u2581", "prepend_scheme": scheme, "split": split})
    add("pre-Metaspace-legacy", "chars", pre_tokenizer={"type": "Metaspace", "replacement": "\u2581", "add_prefix_space": True},
        decoder={"type": "Metaspace", "replacement": "\u2581", "add_prefix_space": True})
    add("pre-CharDelimiterSplit", "chars", pre_tokenizer={"type": "CharDelimiterSplit", "delimiter": "e"})
    add("pre-Sequence", "chars", pre_tokenizer={"type": "Sequence", "pretokenizers": [
        {"type": "WhitespaceSplit"}, {"type": "Digits", "individual_digits": True}, metaspace, {"type": "Punctuation"}]})
    add("pre-ByteLevel-middle", "bytes", pre_tokenizer={"type": "Sequence", "pretokenizers": [
        dict(byte_level, add_prefix_space=True), {"type": "Split", "pattern": {"String": "\u0120"}, "behavior": "MergedWithNext", "invert": False}]})
    add("pre-ByteLevel-twice", "bytes", pre_tokenizer={"type": "Sequence", "pretokenizers": [byte_level, byte_level]})

    # Models.
    for model in ["chars", "fallback", "unigram", "unigram-bytes"]:
        add("model-" + model, model, pre_tokenizer=metaspace, decoder={"type": "Sequence", "decoders": [
            {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "}, {"type": "ByteFallback"}, {"type": "Fuse"},
            {"type": "Strip", "content": " ", "start": 1, "stop": 0}]})
        add("model-" + model + "-whole", model)
    add("model-chars-fuse", "chars+fuse_unk", pre_tokenizer=metaspace)
    add("model-fallback-fuse", "fallback+fuse_unk", added_tokens=special)
    add("model-bytes-ignore-merges", "bytes+ignore_merges", pre_tokenizer=byte_level, decoder=byte_decoder)
    add("model-suffix", "suffix", pre_tokenizer={"type": "WhitespaceSplit"}, decoder={"type": "BPEDecoder", "suffix": "</w>"})
    add("model-prefix", "prefix", pre_tokenizer={"type": "WhitespaceSplit"})
    add("model-wordpiece", "wordpiece", pre_tokenizer={"type": "BertPreTokenizer"}, decoder={"type": "WordPiece", "prefix": "##", "cleanup": True})
    add("model-wordpiece-plain", "wordpiece", pre_tokenizer={"type": "Whitespace"}, decoder={"type": "WordPiece", "prefix": "##", "cleanup": False})

    # Post-processors.
    template = {"type": "TemplateProcessing", "single": [{"SpecialToken": {"id": "<s>", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}},
                {"SpecialToken": {"id": "</s>", "type_id": 0}}], "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
                "special_tokens": {"<s>": {"id": "<s>", "ids": [1], "tokens": ["<s>"]}, "</s>": {"id": "</s>", "ids": [2, 2], "tokens": ["</s>", "</s>"]}}}
    add("post-Template", "chars", pre_tokenizer=metaspace, post_processor=template, added_tokens=special)
    add("post-Bert", "chars", pre_tokenizer=metaspace, post_processor={"type": "BertProcessing", "sep": ["</s>", 2], "cls": ["<s>", 1]})
    add("post-Roberta", "bytes", pre_tokenizer=byte_level, post_processor={"type": "RobertaProcessing", "sep": ["</s>", 2], "cls": ["<s>", 1],
        "trim_offsets": True, "add_prefix_space": False})
    add("post-ByteLevel", "bytes", pre_tokenizer=byte_level, post_processor=dict(byte_level, add_prefix_space=True))
    add("post-Sequence", "bytes", pre_tokenizer=byte_level, post_processor={"type": "Sequence", "processors": [byte_level, template]})

    # Added tokens.
    for model, pre in [("bytes", byte_level), ("chars", metaspace)]:
        add("added-" + model, model, pre_tokenizer=pre, added_tokens=nasty, decoder=byte_decoder if model == "bytes" else metaspace)
        add("added-lower-" + model, model, pre_tokenizer=pre, added_tokens=nasty, normalizer={"type": "Lowercase"})
    add("added-prepend", "fallback", added_tokens=nasty, normalizer={"type": "Sequence", "normalizers": [
        {"type": "Prepend", "prepend": "\u2581"}, {"type": "Replace", "pattern": {"String": " "}, "content": "\u2581"}]})

    # Decoders.
    for name, decoder in [
        ("ByteLevel", byte_decoder), ("ByteFallback", {"type": "ByteFallback"}), ("Fuse", {"type": "Fuse"}), ("Metaspace", metaspace),
        ("Metaspace-never", dict(metaspace, prepend_scheme="never")), ("Strip", {"type": "Strip", "content": "e", "start": 2, "stop": 0}),
        ("Replace-regex", {"type": "Replace", "pattern": {"Regex": "[eo]+"}, "content": "_"}), ("Replace-empty", {"type": "Replace", "pattern": {"String": ""}, "content": "-"}),
        ("WordPiece", {"type": "WordPiece", "prefix": "h", "cleanup": True}), ("BPE", {"type": "BPEDecoder", "suffix": "e"}),
        ("BPE-empty", {"type": "BPEDecoder", "suffix": ""}),
        ("Fuse-Replace", {"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "Replace", "pattern": {"String": "hello"}, "content": "bye"}]}),
        ("Fuse-Replace-regex", {"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "Replace", "pattern": {"Regex": "l+"}, "content": "L"}]}),
        ("Fuse-Strip", {"type": "Sequence", "decoders": [{"type": "ByteFallback"}, {"type": "Fuse"}, {"type": "Strip", "content": "h", "start": 1, "stop": 0}]}),
        ("Fuse-WordPiece", {"type": "Sequence", "decoders": [{"type": "Fuse"}, {"type": "WordPiece", "prefix": "##", "cleanup": True}]}),
        ("ByteLevel-Strip", {"type": "Sequence", "decoders": [
            byte_decoder, {"type": "Strip", "content": " ", "start": 1, "stop": 0}, metaspace]}),
        ("None", None)]:
        add("decoder-" + name, "fallback", pre_tokenizer=metaspace, decoder=decoder, added_tokens=special)
    return out


def encoded(tokenizer, text, add_special_tokens):
    """The ids, or None where `tokenizers` itself panics (or fails)."""
    try:
        return tokenizer.encode(text, add_special_tokens=add_special_tokens).ids
    except BaseException as error:  # noqa: BLE001 - PanicException is no Exception
        if isinstance(error, KeyboardInterrupt):
            raise
        return None


def golden():
    OUT.mkdir(parents=True, exist_ok=True)
    for old in OUT.glob("*.json"):
        old.unlink()
    dump = lambda value: json.dumps(value, ensure_ascii=True, separators=(",", ":"))  # noqa: E731
    pool = make_models()
    texts = FIXED_TEXTS + list(random_strings(14, 20240229))
    (OUT / "models.json").write_text(dump({name: dump(model) for name, model in pool.items()}) + "\n")
    (OUT / "texts.json").write_text(dump(texts) + "\n")
    r = random.Random(7)
    the_map = charsmap()
    (OUT / "charsmap.json").write_text(dump(the_map) + "\n")
    for name, (model_name, rest) in configurations().items():
        base, *flags = model_name.split("+")
        model = dict(pool[base], **{flag: True for flag in flags})
        frame = {"version": "1.0", "truncation": None, "padding": None, "added_tokens": [], "normalizer": None,
                 "pre_tokenizer": None, "post_processor": None, "decoder": None}
        frame.update(rest)
        tokenizer = Tokenizer.from_str(dump(dict(frame, model=model)).replace("@CHARSMAP@", the_map))
        case = {"tokenizer": dump(frame), "model": base, "flags": flags, "ids": [], "plain": [], "decoded": []}
        case["ids"] = [encoded(tokenizer, text, True) for text in texts]
        if frame["post_processor"]:
            case["plain"] = [encoded(tokenizer, text, False) for text in texts]
        size = tokenizer.get_vocab_size()
        for i in range(30 if name.startswith(("decoder", "model", "added")) else 8):
            if i % 2:
                ids = case["ids"][r.randrange(len(texts))] or []
            else:
                ids = [r.randrange(size) for _ in range(r.randrange(1, 12))]
            skip = bool(r.randrange(2))
            if ids:
                case["decoded"].append([ids, skip, tokenizer.decode(ids, skip_special_tokens=skip)])
        (OUT / f"case-{name}.json").write_text(dump(case) + "\n")
    print(sum(f.stat().st_size for f in OUT.glob("*.json")), "bytes in", len(list(OUT.glob("*.json"))), "files")


def main():
    if sys.argv[1:] == ["golden"]:
        golden()
    elif sys.argv[1:2] == ["strings"] and len(sys.argv) in (3, 4):
        for text in random_strings(int(sys.argv[2]), int(sys.argv[3]) if len(sys.argv) > 3 else 1):
            print(json.dumps(text))
    elif sys.argv[1:2] == ["encode"] and len(sys.argv) == 3:
        tokenizer = Tokenizer.from_file(os.path.join(sys.argv[2], "tokenizer.json"))
        tokenizer.no_truncation()
        tokenizer.no_padding()
        for line in sys.stdin:
            print(json.dumps(tokenizer.encode(json.loads(line)).ids))
    else:
        sys.exit(__doc__)


if __name__ == "__main__":
    main()
