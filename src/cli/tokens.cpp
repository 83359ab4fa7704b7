// Text to ids and back, and what a chat template makes of a conversation. Needs no weights and no config.json.
#include <filesystem>
#include <memory>

#include <fmt/format.h>

#include "base/error.h"
#include "base/file_map.h"
#include "base/utf8.h"
#include "chat/template.h"
#include "checkpoint/checkpoint.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "generate/loader.h"
#include "model/open.h"

namespace qgen::cli {
namespace {

struct TokensOptions {
  ModelOptions model;
  std::string input;
  bool decode = false, chat = false, render = false, json = false;
  std::string messages;
  std::optional<std::string> system;
  ReasoningOptions reasoning;
};

std::string render_ids(const std::vector<TokenId>& ids, const std::vector<TokenOffset>* offsets,
                       const Tokenizer& tokenizer, bool json) {
  if (!json) return fmt::format("{}\n", fmt::join(ids, " "));
  std::string out = fmt::format(R"({{"schema":1,"ids":[{}],"pieces":[)", fmt::join(ids, ","));
  for (size_t i = 0; i < ids.size(); ++i) out += (i == 0 ? "" : ",") + json_quote(tokenizer.piece_of(ids[i]));
  out += "]";
  if (offsets != nullptr) {
    out += R"(,"offsets":[)";
    for (size_t i = 0; i < offsets->size(); ++i)
      out += fmt::format("{}[{},{}]", i == 0 ? "" : ",", (*offsets)[i].begin, (*offsets)[i].end);
    out += "]";
  }
  return out + "}\n";
}

int tokens(const TokensOptions& options) {
  require_model(options.model);
  const ModelFiles files = model_files(locate_model(options.model.model));
  const bool conversation = options.chat || !options.messages.empty();
  if (options.decode && (conversation || options.render))
    fail(ErrorKind::kUsage, "tokens: --decode goes with no other mode");
  if (options.render && !conversation) fail(ErrorKind::kUsage, "tokens: --render needs --chat or --messages");
  if (options.render && options.json)
    fail(ErrorKind::kUsage, "tokens: --render and --json", "a rendered prompt is text");
  if (options.chat && !options.messages.empty())
    fail(ErrorKind::kUsage, "tokens: --chat and --messages", "give one of them");

  if (conversation) {
    const auto chat = ChatTemplate::load(files);
    if (!chat) fail(ErrorKind::kModel, fmt::format("{}: no chat template", files.place()));
    std::vector<Message> messages;
    if (!options.messages.empty()) {
      messages = parse_messages(
          options.messages == "-" ? read_stdin() : read_file(options.messages, kMaxTextBytes, ErrorKind::kUsage),
          options.messages);
    } else {
      std::string text = read_text(options.input, "tokens");
      if (!text.empty() && text.back() == '\n') text.pop_back();  // as the main job does
      messages.push_back({"user", std::move(text), {}});
    }
    if (options.system) messages.insert(messages.begin(), {"system", *options.system, {}});
    TemplateOptions template_options;
    template_options.enable_thinking = options.reasoning.enable_thinking();
    std::tie(template_options.bos_token, template_options.eos_token) = ChatTemplate::special_tokens(files);
    const Prompt prompt = chat->render(messages, template_options);
    if (options.render) {
      std::string text;
      for (const PromptPart& part : prompt) text += part.text;
      write_stdout(stdout_is_terminal() ? without_controls(text) + "\n" : text);
      return 0;
    }
    const auto tokenizer = load_tokenizer(files);
    print_stdout(render_ids(tokenizer->encode(prompt), nullptr, *tokenizer, options.json));
    return 0;
  }
  const auto tokenizer = load_tokenizer(files);
  if (options.decode) {
    const std::vector<TokenId> ids = parse_token_ids(read_text(options.input, "tokens"), "tokens", INT32_MAX);
    for (const TokenId id : ids) {
      if (size_t(id) >= tokenizer->vocabulary_size() && tokenizer->piece_of(id).empty()) {
        fail(ErrorKind::kUsage,
             fmt::format("tokens: {} is not in the vocabulary (expected below {})", id, tokenizer->vocabulary_size()));
      }
    }
    const std::string text = tokenizer->decode(ids);
    write_stdout(options.json           ? fmt::format("{{\"schema\":1,\"text\":{}}}\n", json_quote(text))
                 : stdout_is_terminal() ? without_controls(text) + "\n"
                                        : text);
    return 0;
  }
  const Encoding encoding = tokenizer->encode(read_text(options.input, "tokens"));
  print_stdout(render_ids(encoding.ids, &encoding.offsets, *tokenizer, options.json));
  return 0;
}

Command::Bound bind() {
  const auto o = std::make_shared<TokensOptions>();
  std::vector<Option> options = {
      model_option(o->model),
      {"input", &o->input, "FILE|-", "a file, or - for standard input"},
      {"--decode", &o->decode, "", "from ids to text"},
      {"--chat", &o->chat, "", "through the chat template, the text being the user's message"},
      {"--messages", &o->messages, "FILE|-", "a conversation: [{\"role\": …, \"content\": …}, …]"},
      {"-s,--system", &o->system, "TEXT", "the system message, for --chat and --messages"},
      think_option(o->reasoning),
      {"--render", &o->render, "", "the rendered prompt instead of its ids"},
      {"--json", &o->json, "", "one JSON object with ids, pieces and offsets"}};
  return {options, [o] { return tokens(*o); }};
}

}  // namespace

const Command kTokensCommand = {"tokens", "text to token ids and back",
                                R"(  qgen tokens -m ./model <<< "Once upon a time"          ids
  qgen tokens -m ./model --decode <<< "9038 2501"        text
  qgen tokens -m ./model --chat --render <<< "Hi"        the prompt as the chat template makes it
)",
                                bind};

}  // namespace qgen::cli
