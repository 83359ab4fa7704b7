#include "generate/text_model.h"

#include <algorithm>
#include <random>

#include <fmt/format.h>

#include "base/config_tokens.h"
#include "base/error.h"
#include "chat/reasoning.h"
#include "generate/prompt_limit.h"

namespace qgen {

TextModel::TextModel(const ModelOptions& options, bool raw) : options_(options), plan_(open_plan(options)) {
  const ModelFiles& files = plan_->checkpoint.files();
  tokenizer_ = load_tokenizer(files);
  generation_config_ = read_generation_config(files);
  if (!raw) template_ = ChatTemplate::load(files);
  if (template_) tokenizer_->guard(template_->source());
  special_tokens_ = read_config_tokens(files).names;
  ends_ = end_tokens(plan_->model, generation_config_.get(), special_tokens_, *tokenizer_);
}

int64_t TextModel::most_context() const {
  return loaded_.plan ? loaded_.context : options_.context > 0 ? options_.context : plan_->model.context;
}

void TextModel::check(const std::vector<TokenId>& ids) const {
  if (ids.empty()) fail(ErrorKind::kUsage, "the prompt is empty", "this model needs at least one token to start from");
  check_vocabulary(ids, plan());
}

ModelInput TextModel::continue_text(std::string_view text) const {
  refuse_far_too_long({&text, 1}, *tokenizer_, most_context(), name());
  EncodeOptions encode;
  encode.parse_special_tokens = false;
  ModelInput input;
  input.ids = tokenizer_->encode(text, encode).ids;
  check(input.ids);
  return input;
}

Prompt TextModel::render_prompt(const std::vector<Message>& messages, const TemplateVariables& variables) const {
  TemplateOptions options;
  options.variables = variables;
  options.special_tokens = special_tokens_;
  options.own_tokens = own_tokens_of(*tokenizer_);
  // What users wrote templates keep, and are not made to read it where there is far too much of it.
  std::vector<std::string_view> texts;
  for (const Message& message : messages) {
    if (message.role == "user") texts.push_back(message.content);
  }
  refuse_far_too_long(texts, *tokenizer_, most_context(), name());
  Prompt prompt = template_->render(messages, options);
  texts.clear();
  for (const PromptPart& part : prompt) texts.push_back(part.text);
  refuse_far_too_long(texts, *tokenizer_, most_context(), name());
  return prompt;
}

ModelInput TextModel::render(const std::vector<Message>& messages, const TemplateVariables& variables) const {
  const Prompt prompt = render_prompt(messages, variables);
  return input_of(prompt, tokenizer_->encode(prompt));
}

ModelInput TextModel::input_of(const Prompt& prompt, std::vector<TokenId> ids) const {
  ModelInput input;
  input.ids = std::move(ids);
  input.chat_template = true;
  if (!prompt.empty() && prompt.back().trusted) input.thinking = ends_in_thinking(prompt.back().text);
  check(input.ids);
  return input;
}

SamplingSettings TextModel::sampling(const SamplingFlags& flags) const {
  ModelSampling model;
  if (generation_config_) model.config = generation_config_->root();
  const Checkpoint& checkpoint = plan().checkpoint;
  if (!checkpoint.location().gguf_files.empty()) {
    model.config_origin = Origin::kGguf;
    const auto own_name = checkpoint.config().get("_name_or_path");
    const std::string known_as = fmt::format("{} {} {}", name(), own_name ? own_name->as_string() : "",
                                             checkpoint.location().gguf_files.front().filename().string());
    if (!model.config || model.config->members().empty())
      model.published = find_published_sampling(plan().model.family, known_as);
  }
  // Short enough to type again.
  return resolve_sampling(flags, model, std::random_device{}() % 10'000'000);
}

std::vector<std::pair<TokenId, double>> TextModel::logit_bias(const std::vector<std::string>& entries) const {
  std::vector<std::pair<TokenId, double>> out;
  const int64_t vocabulary = plan().model.vocab;
  for (const std::string& entry : entries) {
    char* end = nullptr;
    const long id = std::strtol(entry.c_str(), &end, 10);
    char* value_end = nullptr;
    const double bias = *end == '=' ? std::strtod(end + 1, &value_end) : 0;
    if (end == entry.c_str() || value_end == nullptr || *value_end != '\0' || value_end == end + 1 || id < 0 ||
        id >= vocabulary) {
      fail(ErrorKind::kUsage, fmt::format("--logit-bias {}: not ID=BIAS (expected an id below {})", entry, vocabulary),
           "--logit-bias 42=-5; `qgen tokens` prints ids");
    }
    out.emplace_back(TokenId(id), bias);
  }
  return out;
}

void TextModel::load(int64_t needed, const Progress& progress) {
  loaded_ = load_model(std::move(plan_), options_, needed, progress);
}

bool TextModel::is_end(TokenId id) const { return std::binary_search(ends_.begin(), ends_.end(), id); }

}  // namespace qgen
