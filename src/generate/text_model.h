// A model that reads and writes text: its plan and tokenizer files first, so that prompts can be checked, then the
// loaded engine.
#pragma once

#include <filesystem>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "chat/template.h"
#include "generate/loader.h"
#include "generate/sampling_settings.h"
#include "tokenizer/tokenizer.h"

namespace qgen {

// What the model is given to go on from.
struct ModelInput {
  std::vector<TokenId> ids;
  bool chat_template = false;
  bool thinking = false;  // the prompt ends inside an open <think> block
};

class TextModel {
 public:
  // Reads headers and tokenizer files only. `raw`: without the chat template, even where the model has one.
  TextModel(const ModelOptions& options, bool raw);

  bool has_template() const { return template_.has_value(); }
  // Whether there is a template that reads this variable.
  bool template_reads(std::string_view variable) const { return template_ && template_->mentions(variable); }
  // Plain text, continued as it is. What a user types never becomes a special token.
  ModelInput continue_text(std::string_view text) const;
  // A conversation, rendered by the template.
  ModelInput render(const std::vector<Message>& messages, const TemplateVariables& variables) const;
  // What render() turns into ids.
  Prompt render_prompt(const std::vector<Message>& messages, const TemplateVariables& variables) const;
  // The input for a rendered prompt whose ids are known.
  ModelInput input_of(const Prompt& prompt, std::vector<TokenId> ids) const;

  // The flags over what the model recommends; a random seed where none is given.
  SamplingSettings sampling(const SamplingFlags& flags) const;
  // "ID=BIAS" entries; a usage Error on anything else.
  std::vector<std::pair<TokenId, double>> logit_bias(const std::vector<std::string>& entries) const;

  // Loads the weights with room for `needed` tokens (load_model()).
  void load(int64_t needed, const Progress& progress = {});

  const Plan& plan() const { return loaded_.plan ? *loaded_.plan : *plan_; }
  const Tokenizer& tokenizer() const { return *tokenizer_; }
  const std::string& name() const { return plan().checkpoint.location().name; }
  bool is_end(TokenId id) const;
  // After load():
  const LoadedModel& loaded() const { return loaded_; }
  Engine& engine() const { return *loaded_.engine; }

 private:
  void check(const std::vector<TokenId>& ids) const;
  int64_t most_context() const;  // tokens; before load() what it can be at most

  ModelOptions options_;
  std::unique_ptr<Plan> plan_;
  std::unique_ptr<Tokenizer> tokenizer_;
  std::optional<ChatTemplate> template_;
  SpecialTokens special_tokens_;
  std::unique_ptr<JsonDocument> generation_config_;
  std::vector<TokenId> ends_;  // sorted
  LoadedModel loaded_;
};

}  // namespace qgen
