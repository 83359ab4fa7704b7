// Templates for one text only: pairs of texts do not occur here.
#include "tokenizer/post_processors.h"

#include <algorithm>

#include <fmt/format.h>

#include "base/error.h"
#include "tokenizer/text.h"

namespace qgen::tokenizer {
namespace {

constexpr int kMaxDepth = 32;
constexpr size_t kMaxSteps = 100;
constexpr size_t kMaxTemplateIds = 1 << 16;

void apply(const PostTemplate& step, const Tokenizer&, bool add_special_tokens, size_t most, Encoding& encoding) {
  Encoding out;
  size_t tokens = 0;
  for (const PostTemplate::Item& item : step.items) tokens += item.text ? encoding.ids.size() : item.ids.size();
  if (tokens > most)
    fail(ErrorKind::kModel, fmt::format("tokenizer: its post-processors make more than {} tokens of the text", most),
         "a damaged tokenizer.json?");
  for (const PostTemplate::Item& item : step.items) {
    if (item.text) {
      out.ids.insert(out.ids.end(), encoding.ids.begin(), encoding.ids.end());
      out.offsets.insert(out.offsets.end(), encoding.offsets.begin(), encoding.offsets.end());
    } else if (add_special_tokens) {
      out.ids.insert(out.ids.end(), item.ids.begin(), item.ids.end());
      out.offsets.resize(out.ids.size());
    }
  }
  encoding = std::move(out);
}

bool is_space(uint32_t c) { return c == 0x120 || is_white_space(c); }

void apply(const PostTrimOffsets& step, const Tokenizer& tokenizer, bool, size_t, Encoding& encoding) {
  for (size_t i = 0; i < encoding.ids.size(); ++i) {
    const std::string piece = tokenizer.piece_of(encoding.ids[i]);
    size_t leading = 0, trailing = 0;
    for (std::string_view left = piece; !left.empty();) {
      const Char c = char_at(left);
      if (!is_space(c.code_point)) break;
      ++leading;
      left.remove_prefix(c.length);
    }
    for (std::string_view left = piece; !left.empty();) {
      const Char c = char_before_end(left);
      if (!is_space(c.code_point)) break;
      ++trailing;
      left.remove_suffix(c.length);
    }
    TokenOffset& offset = encoding.offsets[i];
    if (leading > 0) {
      // One space at the beginning is the one that we added.
      if ((i == 0 || offset.begin == 0) && step.add_prefix_space && leading == 1) leading = 0;
      offset.begin = std::min(offset.begin + leading, offset.end);
    }
    if (trailing > 0 && offset.end >= trailing) offset.end = std::max(offset.end - trailing, offset.begin);
  }
}

TokenId read_id(const Json& json) { return TokenId(json.as_integer(0, INT32_MAX)); }

// ["[CLS]", 101]
TokenId read_pair(const Json& json) {
  const auto pair = json.elements();
  if (pair.size() != 2) json.fail("expected a token and its id");
  pair[0].as_string();
  return read_id(pair[1]);
}

PostTemplate read_template(const Json& json) {
  PostTemplate out;
  size_t ids = 0;
  const Json specials = json.at("special_tokens");
  for (const Json& piece : json.at("single").elements()) {
    if (const auto sequence = piece.get("Sequence")) {
      const Json id = sequence->at("id");
      if (id.as_string() != "A") id.fail(fmt::format("'{}' is not supported here", id.as_string()));
      out.items.push_back({true, {}});
    } else {
      PostTemplate::Item item;
      for (const Json& id : specials.at(piece.at("SpecialToken").at("id").as_string()).at("ids").elements()) {
        item.ids.push_back(read_id(id));
        if (++ids > kMaxTemplateIds) json.fail(fmt::format("more than {} special tokens", kMaxTemplateIds));
      }
      out.items.push_back(std::move(item));
    }
  }
  const auto texts = std::count_if(out.items.begin(), out.items.end(), [](const auto& item) { return item.text; });
  if (texts > 16) json.fail("the text occurs too often");
  out.always = texts != 1;
  return out;
}

void read_into(const Json& json, int depth, std::vector<PostProcessor>& out) {
  if (depth > kMaxDepth || out.size() > kMaxSteps) json.fail("too many nested post-processors");
  const Json type_json = json.at("type");
  const std::string_view type = type_json.as_string();
  if (type == "Sequence") {
    for (const Json& element : json.at("processors").elements()) read_into(element, depth + 1, out);
  } else if (type == "TemplateProcessing") {
    out.emplace_back(read_template(json));
  } else if (type == "ByteLevel") {
    const bool add_prefix_space = json.at("add_prefix_space").as_bool();
    if (json.at("trim_offsets").as_bool()) out.emplace_back(PostTrimOffsets{add_prefix_space});
  } else if (type == "RobertaProcessing" || type == "BertProcessing") {
    if (type == "RobertaProcessing" && json.flag_or("trim_offsets", true)) {
      out.emplace_back(PostTrimOffsets{json.flag_or("add_prefix_space", true)});
    }
    PostTemplate around;
    around.items = {{false, {read_pair(json.at("cls"))}}, {true, {}}, {false, {read_pair(json.at("sep"))}}};
    out.emplace_back(std::move(around));
  } else {
    type_json.fail(fmt::format("'{}' is not supported", type));
  }
}

}  // namespace

std::vector<PostProcessor> read_post_processors(const Json& json) {
  std::vector<PostProcessor> out;
  if (!json.is_null()) read_into(json, 0, out);
  return out;
}

void post_process(const std::vector<PostProcessor>& processors, const Tokenizer& tokenizer, bool add_special_tokens,
                  Encoding& encoding) {
  const size_t most = most_bytes_from(encoding.ids.size());
  for (const PostProcessor& processor : processors) {
    const auto* around = std::get_if<PostTemplate>(&processor);
    if (around != nullptr && !add_special_tokens && !around->always) continue;
    std::visit([&](const auto& step) { apply(step, tokenizer, add_special_tokens, most, encoding); }, processor);
  }
}

}  // namespace qgen::tokenizer
