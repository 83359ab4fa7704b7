// Text to ids and back, and what a chat template makes of a conversation. Needs no weights and no config.json.
#include <algorithm>
#include <filesystem>
#include <memory>
#include <span>

#include <fmt/format.h>

#include "base/config_tokens.h"
#include "base/error.h"
#include "base/file_map.h"
#include "base/utf8.h"
#include "chat/template.h"
#include "checkpoint/checkpoint.h"
#include "cli/input_text.h"
#include "cli/notes.h"
#include "cli/options.h"
#include "cli/terminal.h"
#include "generate/conversation.h"
#include "generate/loader.h"
#include "model/open.h"

namespace qgen::cli {
namespace {

struct TokensOptions {
  ModelOptions model;
  InputOptions text;
  std::vector<std::string> words;
  std::string input;  // "": standard input if something is there; "-": standard input; else a file
  bool decode = false, chat = false, render = false, json = false;
  std::string messages;
  std::optional<std::string> system;
  ReasoningOptions reasoning;
  TypedOptions typed;
};

// The conversation that is asked for.
Conversation read_said(const TokensOptions& options) {
  Conversation said;
  if (options.messages == "-") {
    said = read_talk_from_stdin(options.text);
  } else if (!options.messages.empty()) {
    said = read_talk(options.messages, options.text);
  } else {
    said.messages.push_back({"user", read_prompt(options.input, "tokens", options.text), {}});
  }
  if (options.system) said.set_system(valid_text(*options.system, "--system", options.text));
  return said;
}

// Options for conversations where there is none, or a template that does not listen. `chat`: null without one.
void note_unused(const TokensOptions& options, const ChatTemplate* chat) {
  Warnings warnings{ReportOptions()};
  note_repeated(options.typed, {"model", "messages", "system"}, warnings);
  constexpr std::string_view kNoConversation = "it belongs to --chat and --messages";
  if (chat == nullptr && options.typed.contains("system"))
    warnings.add(fmt::format("--system: no effect, {}", kNoConversation));
  const auto reads = [&](std::string_view variable) { return chat != nullptr && chat->mentions(variable); };
  note_template_options(options.reasoning, options.typed, reads, chat == nullptr ? kNoConversation : "", warnings);
}

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
    note_unused(options, &*chat);
    const std::vector<Message> messages = read_said(options).all();
    TemplateOptions template_options;
    template_options.variables = options.reasoning.variables();
    template_options.special_tokens = read_config_tokens(files).names;
    std::unique_ptr<Tokenizer> tokenizer;
    if (!options.render) {
      tokenizer = load_tokenizer(files);
      tokenizer->guard(chat->source());
      template_options.own_tokens = own_tokens_of(*tokenizer);
    }
    const Prompt prompt = chat->render(messages, template_options);
    if (options.render) {
      std::string text;
      for (const PromptPart& part : prompt) text += part.text;
      write_stdout(stdout_is_terminal() ? without_controls(text) + "\n" : text);
      return 0;
    }
    print_stdout(render_ids(tokenizer->encode(prompt), nullptr, *tokenizer, options.json));
    return 0;
  }
  note_unused(options, nullptr);
  const auto tokenizer = load_tokenizer(files);
  if (options.decode) {
    std::vector<TokenId> ids = parse_token_ids(read_text(options.input, "tokens", options.text), "tokens", INT32_MAX);
    for (const TokenId id : ids) {
      if (size_t(id) >= tokenizer->vocabulary_size() && tokenizer->piece_of(id).empty()) {
        fail(ErrorKind::kUsage,
             fmt::format("tokens: {} is not in the vocabulary (expected below {})", id, tokenizer->vocabulary_size()));
      }
    }
    // Text and back is the same text: what encoding puts before it is not shown.
    const std::vector<TokenId> before = tokenizer->encode("").ids;
    if (std::ranges::equal(before, std::span(ids).first(std::min(ids.size(), before.size()))))
      ids.erase(ids.begin(), ids.begin() + ptrdiff_t(before.size()));
    const std::string text = tokenizer->decode(ids, false);
    write_stdout(options.json           ? fmt::format("{{\"schema\":1,\"text\":{}}}\n", json_quote(text))
                 : stdout_is_terminal() ? without_controls(text) + "\n"
                                        : text);
    return 0;
  }
  const std::string text = read_text(options.input, "tokens", options.text);
  const Encoding encoding = tokenizer->encode(text);
  print_stdout(render_ids(encoding.ids, &encoding.offsets, *tokenizer, options.json));
  return 0;
}

Command::Bound bind() {
  const auto o = std::make_shared<TokensOptions>();
  std::vector<Option> options = {
      model_option(o->model),
      {"words", &o->words, "[MODEL] [FILE|-]",
       "the model, where no option names it; a text, or - for standard input: as it is, but for a byte order mark and "
       "one newline at its end"},
      {"--decode", &o->decode, "",
       "read ids and print their text, also of special tokens but for those that encoding puts first"},
      {"--chat", &o->chat, "", "send the text through the chat template, as the user's message"},
      {"--messages", &o->messages, "FILE|-",
       "read a conversation: what /save of a chat wrote, or [{\"role\": …, \"content\": …}, …]"},
      {"-s,--system", &o->system, "TEXT", "the system message, for --chat and --messages"},
      think_option(o->reasoning),
      template_arguments_option(o->reasoning),
      {"--render", &o->render, "", "print the rendered prompt instead of its ids"},
      {"--json", &o->json, "", "print one JSON object with ids, pieces and offsets"},
      invalid_utf8_option(o->text)};
  return {options,
          [o] {
            o->input = take_words(o->words, o->model, "tokens");
            return tokens(*o);
          },
          &o->typed};
}

constexpr Example kExamples[] = {
    {"qgen tokens -m ./model <<< \"Once upon a time\"", "ids"},
    {"qgen tokens -m ./model --decode <<< \"9038 2501\"", "text"},
    {"qgen tokens -m ./model --chat --render <<< \"Hi\"", "the prompt as the chat template makes it"}};

}  // namespace

const Command kTokensCommand = {"tokens", "text to token ids and back", kExamples, bind};

}  // namespace qgen::cli
