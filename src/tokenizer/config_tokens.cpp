// The files overlap: tokenizer_config.json is the youngest format and wins.
#include "tokenizer/config_tokens.h"

#include <charconv>

#include <fmt/format.h>

namespace qgen::tokenizer {
namespace {

constexpr int64_t kMaxAddedId = 1 << 26;

std::unique_ptr<JsonDocument> open(const ModelFiles& files, const char* name) {
  return files.has(name) ? JsonDocument::parse(files.read(name), files.subject(name)) : nullptr;
}

AddedToken plain_token(const Json& json) {
  AddedToken token;
  if (json.is_string()) {
    token.content = json.as_string();
  } else {
    token = read_added_token(json, std::string(json.at("content").as_string()));
    token.normalized = false;  // these files belong to tokenizers that look for tokens in the text as it is
  }
  return token;
}

// "bos_token" and its like, in either of the two files that have them.
void read_roles(const Json& root, ConfigTokens& out) {
  const auto note = [&](const Json& json) {
    AddedToken token = plain_token(json);
    token.special = true;
    if (!token.content.empty()) out.specials.try_emplace(token.content, token);
    return token.content;
  };
  for (const char* role :
       {"bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token"}) {
    const auto json = root.get(role);
    if (json && (json->is_string() || json->is_object())) out.roles.try_emplace(role, note(*json));
  }
  if (const auto list = root.get("additional_special_tokens"); list && list->is_array()) {
    for (const Json& json : list->elements()) note(json);
  }
}

}  // namespace

ConfigTokens read_config_tokens(const ModelFiles& files) {
  ConfigTokens out;
  if (const auto document = open(files, "tokenizer_config.json")) {
    const Json root = document->root();
    if (const auto decoder = root.get("added_tokens_decoder")) {
      for (const auto& [key, json] : decoder->members()) {
        int64_t id = -1;
        const auto end = std::from_chars(key.data(), key.data() + key.size(), id);
        if (end.ec != std::errc() || end.ptr != key.data() + key.size() || id < 0 || id > kMaxAddedId) {
          json.fail("expected a token id for the key");
        }
        out.tokens[TokenId(id)] = plain_token(json);
      }
    }
    read_roles(root, out);
    const auto flag = [&](const char* key) -> std::optional<bool> {
      const auto json = root.get(key);
      if (!json || !json->is_bool()) return {};
      return json->as_bool();
    };
    if (const auto name = root.get("tokenizer_class"); name && name->is_string())
      out.tokenizer_class = name->as_string();
    out.add_bos_token = flag("add_bos_token");
    out.add_eos_token = flag("add_eos_token");
    out.add_prefix_space = flag("add_prefix_space");
    out.legacy = flag("legacy");
  }
  if (const auto document = open(files, "special_tokens_map.json")) read_roles(document->root(), out);
  if (const auto document = open(files, "added_tokens.json")) {
    for (const auto& [content, json] : document->root().members()) {
      AddedToken token;
      token.content = content;
      out.tokens.try_emplace(TokenId(json.as_integer(0, kMaxAddedId)), token);
    }
  }
  for (auto& [id, token] : out.tokens) token.special = token.special || out.specials.contains(token.content);
  return out;
}

void ConfigTokens::add_to(AddedTokens& added, const Vocabulary& vocabulary) const {
  const auto as_is = [](std::string_view content) { return std::string(content); };
  for (const auto& [id, token] : tokens) added.add_with_id(token, id, as_is);
  for (const auto& [content, token] : specials) {
    const TokenId id = vocabulary.find(content);
    if (id >= 0 && added.id_of(content) < 0) added.add_with_id(token, id, as_is);
  }
}

std::optional<TokenId> ConfigTokens::id_of_role(const std::string& role, const AddedTokens& added,
                                                const Vocabulary& vocabulary) const {
  const auto content = roles.find(role);
  if (content == roles.end()) return {};
  TokenId id = added.id_of(content->second);
  if (id < 0) id = vocabulary.find(content->second);
  if (id < 0) return {};
  return id;
}

}  // namespace qgen::tokenizer
