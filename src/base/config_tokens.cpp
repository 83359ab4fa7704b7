#include "base/config_tokens.h"

#include <charconv>
#include <memory>
#include <vector>

#include <fmt/format.h>

namespace qgen {
namespace {

constexpr int64_t kMaxAddedId = 1 << 26;
constexpr size_t kMaxFileBytes = size_t{64} << 20;

std::unique_ptr<JsonDocument> open(const ModelFiles& files, const char* name) {
  return files.has(name) ? JsonDocument::parse(files.read(name, kMaxFileBytes), files.subject(name)) : nullptr;
}

// Those of classes of transformers whose tokens the files may leave out.
SpecialTokens names_of_class(std::string_view tokenizer) {
  constexpr struct {
    std::string_view tokenizer, bos, eos, unk;
  } kClasses[] = {{"LlamaTokenizer", "<s>", "</s>", "<unk>"},
                  {"GPT2Tokenizer", "<|endoftext|>", "<|endoftext|>", "<|endoftext|>"},
                  {"GemmaTokenizer", "<bos>", "<eos>", "<unk>"},
                  {"CohereTokenizer", "<BOS_TOKEN>", "<|END_OF_TURN_TOKEN|>", "<UNK>"}};
  if (tokenizer.ends_with("Fast")) tokenizer.remove_suffix(4);
  for (const auto& row : kClasses) {
    if (tokenizer == row.tokenizer) {
      return {{"bos_token", std::string(row.bos)},
              {"eos_token", std::string(row.eos)},
              {"unk_token", std::string(row.unk)}};
    }
  }
  return {{"bos_token", ""}, {"eos_token", ""}};
}

AddedToken special_token(const Json& json) {
  AddedToken token;
  if (json.is_string()) {
    token.content = json.as_string();
  } else {
    token = read_added_token(json, std::string(json.at("content").as_string()));
  }
  token.special = true;
  return token;
}

// The special tokens of files, the later of which say what counts.
struct Specials {
  std::map<std::string, AddedToken, std::less<>> named;
  std::vector<AddedToken> others;

  void read(const Json& root, SpecialTokens& names) {
    if (!root.is_object()) return;
    read_names(root, names);
    for (const char* key : {"additional_special_tokens", "extra_special_tokens", "model_specific_special_tokens"}) {
      const auto more = root.get(key);
      if (more && more->is_object()) read_names(*more, names);
      if (!more || !more->is_array()) continue;
      for (const Json& json : more->elements()) {
        if (json.is_string() || json.is_object()) others.push_back(special_token(json));
      }
    }
  }

 private:
  void read_names(const Json& object, SpecialTokens& names) {
    for (const auto& [key, value] : object.members()) {
      if (!key.ends_with("_token") || key.starts_with("add_")) continue;  // add_bos_token is a flag
      const std::string name(key);
      if (value.is_null()) {
        names.erase(name);
        named.erase(name);
      } else if (value.is_string() || value.is_object()) {
        named[name] = special_token(value);
        names[name] = named[name].content;
      }
    }
  }
};

}  // namespace

AddedToken read_added_token(const Json& json, std::string content) {
  const auto flag = [&](std::string_view key, bool otherwise) {
    const auto value = json.get(key);
    return value ? value->as_bool() : otherwise;
  };
  AddedToken token;
  token.content = std::move(content);
  token.single_word = flag("single_word", false);
  token.lstrip = flag("lstrip", false);
  token.rstrip = flag("rstrip", false);
  token.special = flag("special", false);
  token.normalized = flag("normalized", !token.special);
  return token;
}

ConfigTokens read_config_tokens(const ModelFiles& files) {
  ConfigTokens out;
  Specials specials;
  bool has_decoder = false;
  out.names = names_of_class("");
  if (const auto document = open(files, "tokenizer_config.json")) {
    const Json root = document->root();
    if (const auto name = root.get("tokenizer_class"); name && name->is_string())
      out.tokenizer_class = name->as_string();
    out.names = names_of_class(out.tokenizer_class);
    if (const auto decoder = root.get("added_tokens_decoder")) {
      has_decoder = true;
      for (const auto& [key, json] : decoder->members()) {
        int64_t id = -1;
        const auto end = std::from_chars(key.data(), key.data() + key.size(), id);
        if (end.ec != std::errc() || end.ptr != key.data() + key.size() || id < 0 || id > kMaxAddedId) {
          json.fail("expected a token id for the key");
        }
        out.tokens[TokenId(id)] = read_added_token(json, std::string(json.at("content").as_string()));
      }
    }
    specials.read(root, out.names);
    const auto flag = [&](const char* key) -> std::optional<bool> {
      const auto json = root.get(key);
      if (!json || !json->is_bool()) return {};
      return json->as_bool();
    };
    out.add_bos_token = flag("add_bos_token");
    out.add_eos_token = flag("add_eos_token");
    out.add_prefix_space = flag("add_prefix_space");
    out.legacy = flag("legacy");
  }
  if (!has_decoder) {
    if (const auto document = open(files, "special_tokens_map.json")) specials.read(document->root(), out.names);
  }
  for (AddedToken& token : specials.others) out.specials[token.content] = std::move(token);
  for (auto& [name, token] : specials.named) out.specials[token.content] = std::move(token);
  out.specials.erase("");
  if (!has_decoder) {
    if (const auto document = open(files, "added_tokens.json")) {
      for (const auto& [content, json] : document->root().members()) {
        AddedToken& token = out.tokens[TokenId(json.as_integer(0, kMaxAddedId))];
        token.content = content;
        token.special = out.specials.contains(token.content);
        token.normalized = !token.special;
      }
    }
  }
  return out;
}

}  // namespace qgen
