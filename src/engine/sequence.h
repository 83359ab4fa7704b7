// One sequence of an engine, open as long as the object lives: what programs that run a single text want.
#pragma once

#include <cstdint>
#include <functional>
#include <span>

#include "base/token.h"
#include "engine/engine.h"

namespace qgen {

// Receives the scores of the token that follows token `index` of the call; valid as those of ScoresSink.
using LogitsSink = std::function<void(int64_t index, const Scores& scores)>;

class Sequence {
 public:
  // With room for `tokens`. A runtime Error where the engine has none.
  Sequence(Engine& engine, int64_t tokens);
  ~Sequence();
  Sequence(Sequence&& other) noexcept : engine_(other.engine_), id_(std::exchange(other.id_, -1)) {}
  Sequence(const Sequence&) = delete;

  Engine& engine() const { return engine_; }
  SequenceId id() const { return id_; }
  int64_t position() const { return engine_.position(id_); }
  int64_t rewind(int64_t position) { return engine_.rewind(id_, position); }
  void mark(int mark) { engine_.mark(id_, mark); }
  // Appends tokens and returns the scores of the next one; `each`, where given, gets those after every token. Nothing
  // is returned where the observer stopped it.
  Scores run(std::span<const TokenId> tokens, const LogitsSink& each = {});
  Scores run(TokenId token, std::span<const TokenChoice> choices = {}) {
    return run(Work{.tokens = {&token, 1}, .choices = choices}, {});
  }
  // As the work says, of which the sequence is set here; `each` gets the scores that it wants.
  Scores run(Work work, const LogitsSink& each);
  // Engine::draft()
  std::vector<TokenId> draft(int64_t position, TokenId token, int64_t most) {
    return engine_.draft(id_, position, token, most);
  }

 private:
  Engine& engine_;
  SequenceId id_;
};

}  // namespace qgen
