// Conversations with the model that ships: every token is computed once, and what fails leaves everything as it was.
#include "generate/chat_session.h"

#include "base/error.h"
#include "tests/support.h"

namespace qgen::test {
namespace {

constexpr const char* kAppendOnly =
    "{% for m in messages %}{{ bos_token + m.role }}\n{{ m.content + eos_token }}\n{% endfor %}"
    "{% if add_generation_prompt %}{{ bos_token }}assistant\n{% endif %}";
// Takes the thinking, and white space, out of earlier answers.
constexpr const char* kRewriting =
    "{% for m in messages %}{{ bos_token + m.role }}\n{{ m.content.split('</think>')[-1] | trim + eos_token }}\n"
    "{% endfor %}{% if add_generation_prompt %}{{ bos_token }}assistant\n<think>\n\n</think>\n\n{% endif %}";
constexpr const char* kStrict =
    "{% for m in messages %}{% if m.role == 'system' %}{{ raise_exception('no system role') }}{% endif %}"
    "{{ bos_token + m.role }}\n{{ m.content + eos_token }}\n{% endfor %}";

// The model with a chat template.
class ChatModel {
 public:
  ChatModel(const char* source, int64_t context) {
    for (const auto& entry : fs::directory_iterator(source_folder() / "models/stories260K-FP8"))
      fs::copy(entry.path(), folder_.path() / entry.path().filename());
    folder_.write("chat_template.jinja", source);
    ModelOptions options;
    options.model = folder_.path().string();
    options.context = context;
    options.threads = 2;
    model_.emplace(options, false);
    model_->load(1);
  }
  const TextModel& get() const { return *model_; }

 private:
  TemporaryFolder folder_;
  std::optional<TextModel> model_;
};

GenerationSettings settings_of(int64_t max_tokens, double temperature = 1) {
  GenerationSettings settings;
  settings.max_tokens = max_tokens;
  settings.sampling.temperature.value = temperature;
  settings.sampling.seed.value = 11;
  return settings;
}

struct Turn {
  Generation generation;
  std::string text;
};
Turn ask(ChatSession& session, const std::string& question, const GenerationSettings& settings) {
  Turn turn;
  turn.generation = session.ask(question, settings, [&](const ReasoningPiece& piece) { turn.text += piece.text; });
  return turn;
}

TEST_CASE("Twenty turns compute every token once") {
  const ChatModel model(kAppendOnly, 2048);
  int64_t drafted = 0;
  SUBCASE("token by token") {}
  SUBCASE("with drafts") { drafted = 8; }
  ChatSession session(model.get(), {});
  session.set_system("Tell stories. </s>");
  int64_t computed = 0, held = 0;
  int ends = 0;
  for (int turn = 1; turn <= 20; ++turn) {
    GenerationSettings settings = settings_of(3 + turn % 13);
    settings.sampling.seed.value = uint64_t(turn);
    settings.prompt_lookup = drafted;
    if (turn % 5 == 0) settings.stops = {"."};
    const auto [generation, text] = ask(session, "What is in box " + std::to_string(turn) + "? <s>", settings);
    CAPTURE(turn);
    const int64_t generated = int64_t(generation.tokens.size());
    // All that was held is kept; what is new is the rest of the prompt, with the last token of the answer before.
    CHECK(generation.computed_tokens == generation.prompt_tokens - held);
    CHECK(generation.computed_tokens < 60);
    // The last token of an answer runs with the next prompt, unless the model ended by itself.
    held = generation.prompt_tokens + generated - (generation.stop != "end" && generated > 0);
    if (generation.stop == "stop-string") held = session.tokens_in_context();
    computed += generation.computed_tokens + (session.tokens_in_context() - generation.prompt_tokens);
    CHECK(session.computed_tokens() == computed);
    CHECK(session.tokens_in_context() == held);
    CHECK(session.conversation().messages.back().content == text);
    ends += generation.stop == "end";
  }
  CHECK(session.conversation().turns() == 20);
  CHECK(session.tokens_in_context() == session.computed_tokens());
  MESSAGE("ended by the model: " << ends << " of 20, tokens: " << computed);
}

TEST_CASE("A template that rewrites earlier turns gets the answers of a fresh start") {
  const ChatModel model(kRewriting, 1024);
  ChatSession session(model.get(), {});
  for (int turn = 0; turn < 4; ++turn) ask(session, "Once upon a time", settings_of(12));
  const ChatModel another(kRewriting, 1024);
  ChatSession fresh(another.get(), {});
  fresh.replace(session.conversation());
  const Turn again = ask(fresh, "And then?", settings_of(12, 0));
  const Turn kept = ask(session, "And then?", settings_of(12, 0));
  CHECK(kept.generation.prompt_tokens == again.generation.prompt_tokens);
  CHECK(kept.text == again.text);
}

TEST_CASE("Retry answers the last question again, and keeps the old answer until there is a new one") {
  const ChatModel model(kAppendOnly, 1024);
  ChatSession session(model.get(), {});
  CHECK(contains(error_of([&] { session.retry(settings_of(5), [](const ReasoningPiece&) {}); }),
                 "there is no question yet"));
  ask(session, "Once upon a time", settings_of(8));
  const Turn first = ask(session, "And then?", settings_of(10));
  const auto retry = [&](GenerationSettings settings) {
    Turn turn;
    turn.generation = session.retry(settings, [&](const ReasoningPiece& piece) { turn.text += piece.text; });
    return turn;
  };
  CHECK(retry(settings_of(10)).text == first.text);
  GenerationSettings other = settings_of(10);
  other.sampling.seed.value = 12;
  const Turn second = retry(other);
  CHECK(second.text != first.text);
  CHECK(session.conversation().turns() == 2);
  CHECK(session.conversation().messages.back().content == second.text);
  // Nothing comes of it: all is as it was.
  other.control.stopped = [] { return true; };
  retry(other);
  CHECK(session.conversation().messages.size() == 4);
  CHECK(session.conversation().messages.back().content == second.text);
}

TEST_CASE("An answer asked for again after an undo is the same, and only the question is computed") {
  const ChatModel model(kAppendOnly, 1024);
  ChatSession session(model.get(), {});
  ask(session, "Once upon a time", settings_of(10));
  const int64_t before = session.tokens_in_context();
  const Turn first = ask(session, "And then?", settings_of(10));
  REQUIRE(session.undo());
  CHECK(session.conversation().turns() == 1);
  CHECK(session.tokens_in_context() >= before);
  CHECK(session.tokens_in_context() < first.generation.prompt_tokens);
  const Turn second = ask(session, "And then?", settings_of(10));
  CHECK(second.text == first.text);
  CHECK(second.generation.computed_tokens == 1);  // the prompt itself was still there; its last token gives scores
  session.clear();
  CHECK(session.tokens_in_context() == 0);
  CHECK_FALSE(session.undo());
}

TEST_CASE("A turn that does not fit leaves the conversation as it was") {
  const ChatModel model(kAppendOnly, 96);
  ChatSession session(model.get(), {});
  ask(session, "Once", settings_of(5));
  const Turn before = ask(session, "Then?", settings_of(5, 0));
  std::string long_question;
  for (int i = 0; i < 100; ++i) long_question += "word ";
  ErrorKind kind{};
  const std::string message = error_of([&] { ask(session, long_question, settings_of(5)); }, &kind);
  CHECK(kind == ErrorKind::kUsage);
  CHECK(contains(message, "expected at most 96 tokens, found"));
  CHECK(contains(message, "/undo"));
  CHECK(session.conversation().turns() == 2);
  session.undo();
  CHECK(ask(session, "Then?", settings_of(5, 0)).text == before.text);
  // It fills while an answer is written.
  const Turn last = ask(session, "Go on", settings_of(1000));
  CHECK(last.generation.stop == "context");
  CHECK(session.tokens_in_context() == 96);
  Conversation large = session.conversation();
  large.messages.push_back({"user", long_question, {}});
  CHECK(contains(error_of([&] { session.replace(large); }), "does not fit"));
  CHECK(session.conversation().turns() == 3);
}

TEST_CASE("What the template refuses is not taken over") {
  const ChatModel model(kStrict, 512);
  ChatSession session(model.get(), {});
  CHECK(contains(error_of([&] { session.set_system("Be brief."); }), "no system role"));
  CHECK_FALSE(session.conversation().system.has_value());
}

TEST_CASE("Drafts from the conversation change no turn") {
  const ChatModel model(kRewriting, 1024), another(kRewriting, 1024);
  ChatSession with(model.get(), {}), without(another.get(), {});
  int64_t accepted = 0;
  for (int turn = 0; turn < 3; ++turn) {
    GenerationSettings settings = settings_of(40, 0);
    settings.sampling.logit_bias = {{261 + turn, 100.0}};  // far from a tie
    const Turn plain = ask(without, "Once upon a time", settings);
    settings.prompt_lookup = 16;
    const Turn drafted = ask(with, "Once upon a time", settings);
    CHECK(drafted.text == plain.text);
    CHECK(drafted.generation.computed_tokens == plain.generation.computed_tokens);
    CHECK(with.tokens_in_context() == without.tokens_in_context());
    accepted += drafted.generation.accepted_tokens;
    if (turn == 1) {
      with.undo();
      without.undo();
    }
  }
  CHECK(accepted > 60);
}

TEST_CASE("An error in the middle of an answer keeps the session") {
  const ChatModel model(kAppendOnly, 512);
  ChatSession session(model.get(), {});
  const Turn expected = ask(session, "Once upon a time", settings_of(10, 0));
  session.undo();
  CHECK_THROWS_AS(session.ask("Once upon a time", settings_of(10, 0),
                              [](const ReasoningPiece&) { fail(ErrorKind::kRuntime, "broken"); }),
                  Error);
  CHECK(session.conversation().messages.empty());
  CHECK(ask(session, "Once upon a time", settings_of(10, 0)).text == expected.text);
}

}  // namespace
}  // namespace qgen::test
