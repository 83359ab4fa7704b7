// tokenizer.ggml.* as the files that a Hugging Face folder would have: the same pieces and merges, and what the file
// only names (the pattern that splits words) written out.
#include <algorithm>
#include <array>
#include <bit>
#include <cmath>
#include <iterator>
#include <map>
#include <set>

#include <fmt/format.h>

#include "base/ascii.h"
#include "base/error.h"
#include "base/json.h"
#include "model/gguf_model.h"

namespace qgen {
namespace {

enum TokenType : int64_t { kNormal = 1, kUnknown = 2, kControl = 3, kUserDefined = 4, kUnused = 5, kByte = 6 };

constexpr std::string_view kModelKey = "tokenizer.ggml.model";
constexpr std::string_view kTokensKey = "tokenizer.ggml.tokens";
constexpr std::string_view kWholeKey = "tokenizer.huggingface.json";

// The pre-tokenizers that tokenizer.ggml.pre names, as in the tokenizer.json by which the converter recognized it.
struct PreTokenizer {
  std::string_view name;
  std::string_view normalizer;  // JSON
  std::string_view splits;      // JSON: what comes before the step that spells bytes, with a comma after it
  bool words;                   // that step splits GPT-2's words as well
  bool whole_words;             // a word that is a piece is that piece, whatever the merges say
  bool bos;                     // texts begin with the beginning-of-text token where the file does not say
};

constexpr std::string_view kNone = "null";
constexpr std::string_view kNfc = R"({"type":"NFC"})";
constexpr std::string_view kDigits = R"({"type":"Digits","individual_digits":true},)";
constexpr std::string_view kLlama3Words =
    R"({"type":"Split","pattern":{"Regex":"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|)"
    R"( ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},"behavior":"Isolated","invert":false},)";
constexpr std::string_view kQwen2Words =
    R"({"type":"Split","pattern":{"Regex":"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|)"
    R"( ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},"behavior":"Isolated","invert":false},)";
constexpr std::string_view kQwen35Words =
    R"({"type":"Split","pattern":{"Regex":"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?[\\p{L}\\p{M}]+|\\p{N}|)"
    R"( ?[^\\s\\p{L}\\p{M}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},"behavior":"Isolated","invert":false},)";
constexpr std::string_view kTekkenWords =
    R"({"type":"Split","pattern":{"Regex":"[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*)"
    R"([\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+|[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+)"
    R"([\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*|\\p{N}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},)"
    R"("behavior":"Isolated","invert":false},)";

constexpr std::string_view kGpt4oWords =
    R"({"type":"Split","pattern":{"Regex":"[^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]*)"
    R"([\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|)"
    R"([^\\r\\n\\p{L}\\p{N}]?[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}]+[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}]*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n/]*|\\s*[\\r\\n]+|)"
    R"(\\s+(?!\\S)|\\s+"},"behavior":"Isolated","invert":false},)";
// Tiny Aya cuts numbers into thousands from behind.
constexpr std::string_view kThousands =
    R"~({"type":"Split","pattern":{"Regex":"\\d{1,3}(?=(?:\\d{3})*\\b)"},"behavior":"Isolated","invert":false},)~";
template <const std::string_view&... kParts>
constexpr auto kJoined = [] {
  std::array<char, (kParts.size() + ...)> out{};
  size_t at = 0;
  for (const std::string_view part : {kParts...})
    at = size_t(std::ranges::copy(part, out.begin() + at).out - out.begin());
  return out;
}();
constexpr auto& kTinyAyaText = kJoined<kThousands, kGpt4oWords>;
constexpr std::string_view kTinyAyaWords(kTinyAyaText.data(), kTinyAyaText.size());
constexpr std::string_view kMiniCpm5Words =
    R"({"type":"Split","pattern":{"Regex":"\\p{N}{1,3}"},"behavior":"Isolated","invert":false},)"
    R"({"type":"Split","pattern":{"Regex":"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}+|)"
    R"( ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},"behavior":"Isolated","invert":false},)";
constexpr std::string_view kSeedWords =
    R"({"type":"Split","pattern":{"Regex":"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1}|)"
    R"( ?[^\\s\\p{L}\\p{N}\\r\\n]+|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},"behavior":"Isolated","invert":false},)";
constexpr std::string_view kDeepSeek3Words =
    R"({"type":"Split","pattern":{"Regex":"\\p{N}{1,3}"},"behavior":"Isolated","invert":false},)"
    R"({"type":"Split","pattern":{"Regex":"[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"},)"
    R"("behavior":"Isolated","invert":false},)"
    R"({"type":"Split","pattern":{"Regex":"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|)"
    R"([^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|)"
    R"(\\s+(?!\\S)|\\s+"},"behavior":"Isolated","invert":false},)";

constexpr std::string_view kLingWords =
    R"({"type":"Split","pattern":{"Regex":"'(?i:[sdmt]|ll|ve|re)|[^\\r\\n\\p{L}\\p{N}]?+\\p{L}+|\\p{N}|)"
    R"( ?[^\\s\\p{L}\\p{N}]++[\\r\\n]*|\\s*[\\r\\n]|\\s+(?!\\S)|\\s+"},"behavior":"Isolated","invert":false},)";
constexpr std::string_view kLagunaWords =
    R"({"type":"Split","pattern":{"Regex":"[^\\n]+|[\\n]+"},"behavior":"Isolated","invert":false},)"
    R"({"type":"Split","pattern":{"Regex":"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}|)"
    R"( ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s+(?!\\S)|\\s+"},"behavior":"Isolated","invert":false},)";
constexpr std::string_view kJais2Words =
    R"({"type":"Split","pattern":{"Regex":"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\\r\\n\\p{L}\\p{N}]?\\p{L}+|\\p{N}{1,3}|)"
    R"( ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|\\s{512}(?!\\S)|\\s{256}(?!\\S)|\\s{128}(?!\\S)|)"
    R"(\\s{64}(?!\\S)|\\s{32}(?!\\S)|\\s{16}(?!\\S)|\\s{8}(?!\\S)|\\s{4}(?!\\S)|\\s{1,2}(?!\\S)|\\s{1}"},)"
    R"("behavior":"Isolated","invert":false},)";
// Trinity cuts numbers into thousands from behind, and Asian scripts apart.
constexpr std::string_view kTrinityWords =
    R"~({"type":"Split","pattern":{"Regex":"\\p{N}{1,3}(?=(?:\\p{N}{3})*(?!\\p{N}))"},)~"
    R"("behavior":"Isolated","invert":false},)"
    R"({"type":"Split","pattern":{"Regex":"[\u4e00-\u9fff\u3400-\u4dbf\uf900-\ufaff\u3040-\u309f\u30a0-\u30ff)"
    R"(\uff65-\uff9f\u2f00-\u2fdf\u0e40-\u0e7f\u0e80-\u0eff\u1780-\u17ff\u1000-\u109f\uaa60-\uaa7f\ua9e0-\ua9ff)"
    R"(\uac00-\ud7af\u1100-\u11ff]+"},"behavior":"Isolated","invert":false},)"
    R"({"type":"Split","pattern":{"Regex":"[!\"#$%&'()*+,\\-./:;<=>?@\\[\\\\\\]^_`{|}~][A-Za-z]+|)"
    R"([^\\r\\n\\p{L}\\p{P}\\p{S}]?[\\p{L}\\p{M}]+| ?[\\p{P}\\p{S}]+[\\r\\n]*|\\s*[\\r\\n]+|)"
    R"(\\s+(?!\\S)|\\s+"},"behavior":"Isolated","invert":false},)";

// DeepSeek-V2 and DeepSeek-LLM; their tokenizer.json lists the letters of words one by one.
constexpr std::string_view kDeepSeekWords =
    R"({"type":"Split","pattern":{"Regex":"[\\r\\n]"},"behavior":"Isolated","invert":false},)"
    R"({"type":"Split","pattern":{"Regex":"\\s?[)"
    R"(A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-)"
    R"(\u0373\u0376\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-)"
    R"(\u0481\u048a-\u052f\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf)"
    R"(\u1d00-\u1d2b\u1d6b-\u1d77\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-)"
    R"(\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc)"
    R"(\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115)"
    R"(\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139\u213c-\u213f\u2145-\u2149\u214e)"
    R"(\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d\ua680-\ua69b\ua722-)"
    R"(\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a\uff41-\uff5a)"
    R"(\ud801\udc00-\ud801\udc4f\ud801\udcb0-\ud801\udcd3\ud801\udcd8-\ud801\udcfb\ud803\udc80-\ud803\udcb2)"
    R"(\ud803\udcc0-\ud803\udcf2\ud806\udca0-\ud806\udcdf\ud83a\udd00-\ud83a\udd43)"
    R"(]+"},"behavior":"Isolated","invert":false},)"
    R"({"type":"Split","pattern":{"Regex":"\\s?[!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002]+"},)"
    R"("behavior":"Isolated","invert":false},)"
    R"({"type":"Split","pattern":{"Regex":"\\s+$"},"behavior":"Isolated","invert":false},)"
    R"({"type":"Split","pattern":{"Regex":"[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"},)"
    R"("behavior":"Isolated","invert":false},)"
    R"({"type":"Digits","individual_digits":true},)";
constexpr std::string_view kDeepSeekCoderWords =
    R"({"type":"Split","pattern":{"Regex":"[\\r\\n]"},"behavior":"Isolated","invert":false},)"
    R"({"type":"Split","pattern":{"Regex":"\\s?\\p{L}+"},"behavior":"Isolated","invert":false},)"
    R"({"type":"Split","pattern":{"Regex":"\\s?\\p{P}+"},"behavior":"Isolated","invert":false},)"
    R"({"type":"Split","pattern":{"Regex":"[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"},)"
    R"("behavior":"Isolated","invert":false},)"
    R"({"type":"Digits","individual_digits":true},)";
// The expression of Kimi's tokenizer, whose intersections [A&&[^B]] are (?!B)A here.
constexpr std::string_view kKimiWords =
    R"({"type":"Split","pattern":{"Regex":"[\\p{Han}]+|[^\\r\\n\\p{L}\\p{N}]?)"
    R"((?:(?!\\p{Han})[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}])*(?:(?!\\p{Han})[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}])+)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\\r\\n\\p{L}\\p{N}]?)"
    R"((?:(?!\\p{Han})[\\p{Lu}\\p{Lt}\\p{Lm}\\p{Lo}\\p{M}])+(?:(?!\\p{Han})[\\p{Ll}\\p{Lm}\\p{Lo}\\p{M}])*)"
    R"((?i:'s|'t|'re|'ve|'m|'ll|'d)?|\\p{N}{1,3}| ?[^\\s\\p{L}\\p{N}]+[\\r\\n]*|\\s*[\\r\\n]+|)"
    R"(\\s+(?!\\S)|\\s+"},"behavior":"Isolated","invert":false},)";

constexpr PreTokenizer kPreTokenizers[] = {
    {"gpt-2", kNone, "", true, false, false},
    {"a.x-4.0", kNone, "", true, false, false},
    {"gigachat", kNone, "", true, false, false},
    {"mellum", kNone, "", true, false, false},
    {"trillion", kNone, "", true, false, false},
    {"granite-docling", kNone, "", true, false, false},
    {"mpt", kNfc, "", true, false, false},
    {"olmo", kNfc, "", true, false, false},
    {"smollm", kNone, kDigits, true, false, false},
    {"starcoder", kNone, kDigits, true, false, false},
    {"refact", kNone, kDigits, true, false, false},
    {"llama-bpe", kNone, kLlama3Words, false, true, true},
    {"llama3", kNone, kLlama3Words, false, true, true},
    {"llama-v3", kNone, kLlama3Words, false, true, true},
    {"pixtral", kNone, kLlama3Words, false, true, true},
    {"lfm2", kNone, kLlama3Words, false, true, true},
    {"falcon3", kNone, kLlama3Words, false, true, true},
    {"falcon-h1", kNone, kLlama3Words, false, true, true},
    {"smaug-bpe", kNone, kLlama3Words, false, false, false},
    {"qwen2", kNfc, kQwen2Words, false, false, false},
    {"deepseek-r1-qwen", kNone, kQwen2Words, false, false, false},
    {"tekken", kNone, kTekkenWords, false, true, true},
    {"phi-2", kNone, "", true, false, false},
    {"command-r", kNfc, kDigits, true, false, true},
    {"dbrx", kNone, kLlama3Words, false, false, false},
    {"glm4", kNone, kLlama3Words, false, true, false},
    {"glm5", kNone, kLlama3Words, false, true, false},
    {"chatglm-bpe", kNone, kLlama3Words, false, false, false},
    {"gpt-4o", kNone, kGpt4oWords, false, false, false},
    {"llama4", kNone, kGpt4oWords, false, false, false},
    {"minimax-m2", kNone, kGpt4oWords, false, false, false},
    {"qwen35", kNfc, kQwen35Words, false, false, false},
    {"deepseek-v3", kNone, kDeepSeek3Words, false, false, false},
    {"exaone4", kNone, "", true, false, false},
    {"stablelm2", kNone, kQwen2Words, false, false, false},
    {"seed-coder", kNone, kSeedWords, false, false, false},
    {"hunyuan-dense", kNone, kDeepSeek3Words, false, false, false},
    {"hunyuan", kNone, kQwen2Words, false, false, false},
    {"deepseek-llm", kNone, kDeepSeekWords, false, false, false},
    {"deepseek-coder", kNone, kDeepSeekCoderWords, false, false, false},
    {"kimi-k2", kNone, kKimiWords, false, false, false},
    {"kormo", kNone, kQwen2Words, false, false, false},
    {"megrez", kNone, kQwen2Words, false, false, false},
    {"solar-open", kNone, kQwen2Words, false, false, false},
    {"midm-2.0", kNone, kLlama3Words, false, true, true},
    {"kanana2", kNone, kGpt4oWords, false, false, false},
    {"joyai-llm", kNone, kDeepSeek3Words, false, false, false},
    {"minerva-7b", kNone, kDigits, true, false, false},
    {"tiny_aya", kNone, kTinyAyaWords, false, false, false},
    {"minicpm5", kNone, kMiniCpm5Words, false, true, false},
    {"exaone", kNone, kDigits, true, false, false},
    {"mellum2", kNone, kDigits, true, false, false},
    {"bailingmoe2", kNone, kLingWords, false, false, false},
    {"jais-2", kNone, kJais2Words, false, false, false},
    {"afmoe", kNone, kTrinityWords, false, false, false},
    {"hy_v4", kNone, kDeepSeek3Words, false, false, false},
    {"laguna", kNone, kLagunaWords, false, false, false},
};

const PreTokenizer& pre_tokenizer(const Gguf& keys) {
  constexpr std::string_view kKey = "tokenizer.ggml.pre";
  const auto name = keys.text(kKey);
  if (!name) {
    keys.fail_key(kKey, "missing", "an old file that does not say how its tokenizer splits words: a newer one does");
  }
  for (const PreTokenizer& row : kPreTokenizers) {
    if (row.name == *name) return row;
  }
  std::string known;
  for (const PreTokenizer& row : kPreTokenizers) known += fmt::format("{}{}", known.empty() ? "" : ", ", row.name);
  keys.fail_key(kKey, fmt::format("'{}' is not supported", *name), "supported: " + known);
}

// The normalizers of a tokenizer.json, or its pre-tokenizers, as a text in which only what matters stands: sequences
// are laid flat, and of a step that spells bytes it counts whether it splits words.
void append_steps(const Json& step, std::string& out) {
  if (step.is_null()) return;
  for (const char* list : {"normalizers", "pretokenizers"}) {
    const auto steps = step.get(list);
    if (!steps) continue;
    for (const Json& inner : steps->elements()) append_steps(inner, out);
    return;
  }
  const std::string_view type = step.at("type").as_string();
  out += fmt::format("{}(", type);
  if (const auto pattern = step.get("pattern")) {
    for (const auto& [kind, text] : pattern->members()) out += fmt::format("{} {}", kind, text.as_string());
  }
  for (const char* key : {"behavior", "replacement", "content"}) {
    if (const auto value = step.get(key)) out += fmt::format(" {} {}", key, value->as_string());
  }
  for (const char* key : {"invert", "individual_digits"}) {
    if (step.flag_or(key, false)) out += fmt::format(" {}", key);
  }
  if (type == "ByteLevel" && step.flag_or("use_regex", true)) out += " words";
  out += ") ";
}

std::string steps_of(const std::optional<Json>& steps) {
  std::string out;
  if (steps) append_steps(*steps, out);
  return out;
}

struct Pieces {
  std::vector<std::string_view> texts;
  std::vector<int64_t> types;

  bool is(size_t i, TokenType type) const { return types[i] == type; }
  // Pieces without text occur; as llama.cpp does, they get one that no text becomes.
  std::string text(size_t i) const { return texts[i].empty() ? fmt::format("[EMPTY_{}]", i) : std::string(texts[i]); }
};

Pieces read_pieces(const Gguf& keys) {
  Pieces out;
  auto texts = keys.texts(kTokensKey);
  if (!texts || texts->empty()) keys.fail_key(kTokensKey, texts ? "empty" : "missing");
  out.texts = std::move(*texts);
  constexpr std::string_view kTypesKey = "tokenizer.ggml.token_type";
  if (auto types = keys.integers(kTypesKey)) {
    if (types->size() != out.texts.size()) {
      keys.fail_key(kTypesKey, fmt::format("expected {} types, found {}", out.texts.size(), types->size()));
    }
    out.types = std::move(*types);
  } else {
    out.types.assign(out.texts.size(), kNormal);
  }
  return out;
}

// The id under tokenizer.ggml.<role>_token_id, within the vocabulary.
std::optional<int64_t> token_id(const Gguf& keys, std::string_view role) {
  const std::string key = fmt::format("tokenizer.ggml.{}_token_id", role);
  const GgufValue* tokens = keys.find(kTokensKey);
  // 2^32 - 1 stands for none in some files.
  const auto id = keys.integer(key, -1);
  if (!id || *id == -1 || *id == UINT32_MAX) return {};
  const int64_t count = tokens == nullptr ? INT32_MAX : int64_t(tokens->count);
  if (*id >= count) keys.fail_key(key, fmt::format("out of range (expected 0 to {}, found {})", count - 1, *id));
  return id;
}

// The ids that frame a text: {before, after}.
std::pair<std::optional<int64_t>, std::optional<int64_t>> frame(const Gguf& keys, bool bos_by_default) {
  const bool bos = keys.flag("tokenizer.ggml.add_bos_token").value_or(bos_by_default);
  const bool eos = keys.flag("tokenizer.ggml.add_eos_token").value_or(false);
  return {bos ? token_id(keys, "bos") : std::nullopt, eos ? token_id(keys, "eos") : std::nullopt};
}

std::string post_processor(const Pieces& pieces, const std::optional<int64_t>& bos, const std::optional<int64_t>& eos) {
  if (!bos && !eos) return "null";
  std::string items, specials;
  const auto add = [&](const std::optional<int64_t>& id) {
    if (!id) return;
    const std::string text = json_quote(pieces.text(size_t(*id)));
    items += fmt::format(R"({}{{"SpecialToken":{{"id":{},"type_id":0}}}})", items.empty() ? "" : ",", text);
    const std::string special = fmt::format(R"({}:{{"id":{},"ids":[{}],"tokens":[{}]}})", text, text, *id, text);
    if (specials.find(special) == std::string::npos) specials += (specials.empty() ? "" : ",") + special;
  };
  add(bos);
  items += fmt::format(R"({}{{"Sequence":{{"id":"A","type_id":0}}}})", items.empty() ? "" : ",");
  add(eos);
  return fmt::format(R"({{"type":"TemplateProcessing","single":[{}],"pair":[],"special_tokens":{{{}}}}})", items,
                     specials);
}

// JSON: null where there is none.
std::string unknown_piece(const Pieces& pieces) {
  const auto found = std::ranges::find(pieces.types, int64_t{kUnknown});
  return found == pieces.types.end() ? "null" : json_quote(pieces.text(size_t(found - pieces.types.begin())));
}

std::string added_token(const std::string& text, bool special, bool rstrip = false) {
  return fmt::format(R"("content":{},"single_word":false,"lstrip":false,"rstrip":{},"normalized":false,"special":{})",
                     json_quote(text), rstrip, special);
}

// Whether white space behind special tokens goes, by the model's name: Phi-3's (llama-vocab.cpp, load()).
bool strips_behind_tokens(const Gguf& keys) {
  const std::string name = lower(keys.text("general.name").value_or(""));
  return name.find("phi-3") != name.npos || name.find("phi3") != name.npos;
}

// A protobuf message, field by field.
class Message {
 public:
  void varint(uint32_t field, uint64_t value) {
    put(uint64_t{field} << 3);
    put(value);
  }
  void single(uint32_t field, float value) {
    put(uint64_t{field} << 3 | 5);
    const auto raw = std::bit_cast<std::array<char, 4>>(value);
    bytes_.append(raw.data(), raw.size());
  }
  void text(uint32_t field, std::string_view value) {
    put(uint64_t{field} << 3 | 2);
    put(value.size());
    bytes_ += value;
  }
  const std::string& bytes() const { return bytes_; }

 private:
  void put(uint64_t value) {
    for (; value >= 0x80; value >>= 7) bytes_ += char(value | 0x80);
    bytes_ += char(value);
  }
  std::string bytes_;
};

}  // namespace

GgufTokenizer gguf_tokenizer(const Gguf& keys) {
  if (keys.has(kWholeKey)) return GgufTokenizer::kByteLevel;
  const auto model = keys.text(kModelKey);
  if (!model || *model == "none" || *model == "no_vocab") return GgufTokenizer::kNone;
  if (*model == "gpt2") return GgufTokenizer::kByteLevel;
  if (*model == "gemma4") return GgufTokenizer::kByteFallback;
  return *model == "llama" ? GgufTokenizer::kSentencePiece : GgufTokenizer::kUnsupported;
}

std::string gguf_tokenizer_json(const Gguf& keys) {
  if (const auto whole = keys.text(kWholeKey)) return std::string(*whole);
  const GgufTokenizer kind = gguf_tokenizer(keys);
  if (kind != GgufTokenizer::kByteLevel && kind != GgufTokenizer::kByteFallback) {
    keys.fail_key(kModelKey, fmt::format("'{}' is not supported", keys.text(kModelKey).value_or("")),
                  "supported: gpt2 (byte-level BPE), llama (SentencePiece BPE), gemma4");
  }
  const Pieces pieces = read_pieces(keys);
  const auto merges = keys.texts("tokenizer.ggml.merges");
  if (!merges) keys.fail_key("tokenizer.ggml.merges", "missing");

  std::string added, vocab, pairs;
  for (size_t i = 0; i < pieces.texts.size(); ++i) {
    const std::string text = pieces.text(i);
    fmt::format_to(std::back_inserter(vocab), "{}{}:{}", vocab.empty() ? "" : ",", json_quote(text), i);
    const bool special = pieces.is(i, kControl) || pieces.is(i, kUnknown);
    if (!special && !pieces.is(i, kUserDefined)) continue;
    fmt::format_to(std::back_inserter(added), R"({}{{"id":{},{}}})", added.empty() ? "" : ",", i,
                   added_token(text, special));
  }
  for (const std::string_view merge : *merges) {
    pairs += pairs.empty() ? "" : ",";
    pairs += json_quote(merge);
  }
  if (kind == GgufTokenizer::kByteFallback) {
    // A beginning-of-text token stands before every text, whatever the file says: llama.cpp has it so.
    return fmt::format(
        R"({{"version":"1.0","added_tokens":[{}],"normalizer":{{"type":"Replace","pattern":{{"String":" "}},)"
        R"("content":"\u2581"}},"pre_tokenizer":null,"post_processor":{},"decoder":{{"type":"Sequence","decoders":[)"
        R"({{"type":"Replace","pattern":{{"String":"\u2581"}},"content":" "}},{{"type":"ByteFallback"}},)"
        R"({{"type":"Fuse"}}]}},"model":{{"type":"BPE","unk_token":{},"fuse_unk":true,"byte_fallback":true,)"
        R"("vocab":{{{}}},"merges":[{}]}}}})",
        added, post_processor(pieces, token_id(keys, "bos"), frame(keys, true).second), unknown_piece(pieces), vocab,
        pairs);
  }
  const PreTokenizer& pre = pre_tokenizer(keys);
  const auto [bos, eos] = frame(keys, pre.bos);
  return fmt::format(
      R"({{"version":"1.0","added_tokens":[{}],"normalizer":{},"pre_tokenizer":{{"type":"Sequence","pretokenizers":[)"
      R"({}{{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":false,"use_regex":{}}}]}},"post_processor":{},)"
      R"("decoder":{{"type":"ByteLevel","add_prefix_space":false,"trim_offsets":false,"use_regex":false}},)"
      R"("model":{{"type":"BPE","ignore_merges":{},"vocab":{{{}}},"merges":[{}]}}}})",
      added, pre.normalizer, pre.splits, pre.words, post_processor(pieces, bos, eos), pre.whole_words, vocab, pairs);
}

std::optional<std::string_view> gguf_pre_tokenizer_name(const Json& tokenizer) {
  const std::string normalizer = steps_of(tokenizer.get("normalizer")),
                    splits = steps_of(tokenizer.get("pre_tokenizer"));
  const auto model = tokenizer.get("model");
  const bool whole_words = model && model->flag_or("ignore_merges", false);
  for (const PreTokenizer& row : kPreTokenizers) {
    const auto known = JsonDocument::parse(
        fmt::format(R"({{"normalizer":{},"splits":{{"pretokenizers":[{}{{"type":"ByteLevel","use_regex":{}}}]}}}})",
                    row.normalizer, row.splits, row.words),
        "pre-tokenizer");
    if (row.whole_words == whole_words && steps_of(known->root().get("normalizer")) == normalizer &&
        steps_of(known->root().get("splits")) == splits) {
      return row.name;
    }
  }
  return {};
}

// SentencePiece's own message, as its reader knows it: pieces (1), the kind of model (2), the treatment of spaces (3).
std::string gguf_sentencepiece_model(const Gguf& keys) {
  const Pieces pieces = read_pieces(keys);
  constexpr std::string_view kScoresKey = "tokenizer.ggml.scores";
  const auto scores = keys.floats(kScoresKey);
  if (!scores || scores->size() != pieces.texts.size()) {
    keys.fail_key(kScoresKey,
                  fmt::format("expected {} scores, found {}", pieces.texts.size(), scores ? scores->size() : 0));
  }
  Message model, trainer, normalizer;
  bool bytes = false;
  for (size_t i = 0; i < pieces.texts.size(); ++i) {
    Message piece;
    piece.text(1, pieces.text(i));
    piece.single(2, (*scores)[i]);
    if (pieces.types[i] < kNormal || pieces.types[i] > kByte) {
      keys.fail_key("tokenizer.ggml.token_type", fmt::format("element {}: unknown type {}", i, pieces.types[i]));
    }
    // User-defined pieces are added tokens (tokenizer_config.json): the text is cut at them first.
    piece.varint(3, uint64_t(pieces.is(i, kUserDefined) ? kNormal : pieces.types[i]));
    model.text(1, piece.bytes());
    bytes = bytes || pieces.is(i, kByte);
  }
  constexpr uint64_t kBpe = 2;
  trainer.varint(3, kBpe);
  trainer.varint(35, bytes);
  model.text(2, trainer.bytes());
  if (const GgufValue* map = keys.find("tokenizer.ggml.precompiled_charsmap")) {
    normalizer.text(2, {reinterpret_cast<const char*>(map->bytes.data()), map->bytes.size()});
  }
  normalizer.varint(3, keys.flag("tokenizer.ggml.add_space_prefix").value_or(true));
  normalizer.varint(4, keys.flag("tokenizer.ggml.remove_extra_whitespaces").value_or(false));
  model.text(3, normalizer.bytes());
  return model.bytes();
}

std::string gguf_tokenizer_config_json(const Gguf& keys) {
  std::string out;
  const auto add = [&](std::string_view name, const std::string& value) {
    out += fmt::format(R"({}"{}":{})", out.empty() ? "" : ",", name, value);
  };
  const GgufTokenizer kind = gguf_tokenizer(keys);
  const bool sentencepiece = kind == GgufTokenizer::kSentencePiece;
  if (keys.has(kTokensKey)) {
    const Pieces pieces = read_pieces(keys);
    for (const char* role : {"bos", "eos"}) {
      if (const auto id = token_id(keys, role)) {
        add(fmt::format("{}_token", role), json_quote(pieces.text(size_t(*id))));
      }
    }
    if (sentencepiece) {
      std::string added;
      const bool all_strip = strips_behind_tokens(keys);
      for (size_t i = 0; i < pieces.texts.size(); ++i) {
        const bool control = pieces.is(i, kControl);
        if (!pieces.is(i, kUserDefined) && !(control && all_strip)) continue;
        const std::string text = pieces.text(i);
        const bool strips = all_strip && text != "<unk>" && text != "<s>" && text != "<|endoftext|>";
        added += fmt::format(R"({}"{}":{{{}}})", added.empty() ? "" : ",", i, added_token(text, control, strips));
      }
      add("added_tokens_decoder", "{" + added + "}");
      const auto [bos, eos] = frame(keys, true);
      add("add_bos_token", bos ? "true" : "false");
      add("add_eos_token", eos ? "true" : "false");
      if (keys.text("tokenizer.ggml.pre") == "chatglm-spm") add("tokenizer_class", R"("ChatGLMTokenizer")");
    }
  }
  if (const auto source = keys.text("tokenizer.chat_template")) add("chat_template", json_quote(*source));
  return "{" + out + "}";
}

// Most files name one end token where the model's generation_config.json had several. llama.cpp knows them by their
// texts (llama-vocab.cpp, special_eog_ids).
std::vector<int64_t> gguf_end_tokens(const Gguf& keys) {
  std::set<int64_t> out;
  for (const char* role : {"eos", "eot", "eom"}) {
    if (const auto id = token_id(keys, role)) out.insert(*id);
  }
  for (const int64_t id : keys.integers("tokenizer.ggml.eos_token_ids").value_or(std::vector<int64_t>()))
    out.insert(id);
  if (!keys.has(kTokensKey)) return {out.begin(), out.end()};
  const Pieces pieces = read_pieces(keys);
  constexpr std::string_view kEnds[] = {
      "<|im_end|>", "<|eot_id|>", "<|eom_id|>",    "<|end|>",         "<|return|>",         "<|call|>",
      "<|calls|>",  "<|flush|>",  "<|endoftext|>", "<|end_of_text|>", "<end_of_turn>",      "</s>",
      "<EOT>",      "_<EOT>",     "[EOT]",         "[EOS]",           "<end_of_utterance>", "<｜end▁of▁sentence｜>",
      "[e~["};
  // Of Gemma 4: some are shown, and so no control tokens in its files.
  constexpr std::string_view kGemma4Ends[] = {"<eos>", "<turn|>", "<|tool_response>"};
  const bool gemma4 = gguf_tokenizer(keys) == GgufTokenizer::kByteFallback;
  std::map<std::string_view, int64_t> found;
  for (size_t i = 0; i < pieces.texts.size(); ++i) {
    const std::string_view text = pieces.texts[i];
    const bool ends = gemma4 ? std::ranges::count(kGemma4Ends, text) > 0
                             : !pieces.is(i, kNormal) && std::ranges::count(kEnds, text) > 0;
    if (ends) found[text] = int64_t(i);
  }
  for (const auto& [text, id] : found) out.insert(id);
  // Where messages have ends of other kinds, this one is no turn's.
  const bool calls = found.contains("<|call|>") || found.contains("<|calls|>");
  if (calls && (found.contains("<|return|>") || found.contains("<|flush|>")) && found.contains("<|end|>"))
    out.erase(found["<|end|>"]);
  return {out.begin(), out.end()};
}

std::string gguf_generation_config_json(const Gguf& keys) {
  constexpr std::pair<const char*, const char*> kSettings[] = {{"temp", "temperature"},
                                                               {"top_k", "top_k"},
                                                               {"top_p", "top_p"},
                                                               {"min_p", "min_p"},
                                                               {"penalty_repeat", "repetition_penalty"}};
  std::string out;
  for (const auto& [ours, theirs] : kSettings) {
    if (const auto value = keys.decimal(fmt::format("general.sampling.{}", ours))) {
      out += fmt::format(R"({}"{}":{})", out.empty() ? "" : ",", theirs, *value);
    }
  }
  return out.empty() ? "{}" : "{\"do_sample\":true," + out + "}";
}

}  // namespace qgen
