#include "engine/sequence.h"

#include <fmt/format.h>

#include "base/error.h"

namespace qgen {

Sequence::Sequence(Engine& engine, int64_t tokens) : engine_(engine), id_(-1) {
  const auto id = engine.open(tokens);
  if (!id) fail(ErrorKind::kRuntime, fmt::format("the engine has no room for a sequence of {} tokens", tokens));
  id_ = *id;
}

Sequence::~Sequence() {
  if (id_ >= 0) engine_.close(id_);
}

Scores Sequence::run(std::span<const TokenId> tokens, const LogitsSink& each) {
  return run(Work{id_, tokens, each ? Wanted::kAll : Wanted::kLast}, each);
}

Scores Sequence::run(Work work, const LogitsSink& each) {
  work.sequence = id_;
  ScoresSink sink;
  if (each) sink = [&](size_t, int64_t index, const Scores& scores) { each(index, scores); };
  return engine_.run({&work, 1}, sink) ? engine_.last_scores() : Scores();
}

}  // namespace qgen
