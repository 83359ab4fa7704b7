#include "engine/engine.h"

#include <algorithm>
#include <cstring>
#include <numeric>
#include <utility>

#include <fmt/format.h>

#include "base/error.h"
#include "base/rounding.h"

namespace qgen {
namespace {

constexpr size_t kObservedParts = 16;  // of a batch, between which the observer is asked
// Tokens whose hidden rows are kept for the draft head. A sequence is mostly cut back within a draft, of 32 at most.
constexpr int64_t kHiddenTokens = 64;

// From step i on.
size_t first_scored(const Plan& plan, size_t i) {
  while (i < plan.steps.size() && !plan.rows[size_t(result_of(plan.steps[i]).row)].scored) ++i;
  return i;
}

}  // namespace

std::string_view activations_name(Activations activations) {
  switch (activations) {
    case Activations::kF32: return "f32";
    case Activations::k16Bit: return "16bit";
    case Activations::k8Bit: return "8bit";
  }
  return "?";
}

CacheLimits cache_limits(const EngineOptions& options, int64_t batch_tokens) {
  return {options.context, options.sequences, batch_tokens, options.cache_tokens};
}

int64_t state_slots(const EngineOptions& options) { return options.sequences * (1 + options.marks); }
bool has_spare_slot(const Plan& plan) { return fixed_state_bytes(plan) > 0 && !plan.draft; }

void check_context(const Plan& plan, int64_t context) {
  const ContextLimit& limit = plan.model.context_limit;
  if (limit.tokens == 0 || context <= limit.tokens) return;
  fail(ErrorKind::kUsage,
       fmt::format("{}: the context is longer than {} (expected at most {} tokens, found {})",
                   plan.checkpoint.location().name, limit.reason, limit.tokens, context),
       fmt::format("--context {}", limit.tokens));
}

Engine::Engine(const Plan& plan, const EngineOptions& options, std::unique_ptr<Backend> backend)
    : plan_(plan),
      options_(options),
      backend_(std::move(backend)),
      cache_(plan, cache_limits(options, backend_->batch_tokens())),
      sequences_(size_t(options.sequences)),
      slots_(size_t(options.sequences)),
      spare_slot_(int32_t(state_slots(options))),
      ropes_(plan.ropes, options.context),
      next_ropes_(ropes_),
      first_scored_step_(first_scored(plan, 0)),
      first_scored_draft_step_(first_scored(plan, plan.main_steps())),
      has_fixed_states_(fixed_state_bytes(plan) > 0),
      begins_ahead_(backend_->begins_ahead() && !plan.draft) {
  check_context(plan, options.context);
  std::iota(slots_.begin(), slots_.end(), 0);
  for (const CacheGroup& group : cache_.groups()) pools_.emplace_back(group.pages);
}

std::optional<SequenceId> Engine::open(int64_t tokens) {
  tokens = std::min(tokens, options_.context);
  const auto closed = std::find_if(sequences_.begin(), sequences_.end(), [](const auto& s) { return !s.open; });
  if (closed == sequences_.end()) return {};
  for (size_t g = 0; g < pools_.size(); ++g) {
    if (pools_[g].free() < cache_.pages_for(cache_.groups()[g], tokens)) return {};
  }
  *closed = {};
  closed->open = true;
  closed->room = tokens;
  closed->marks.resize(size_t(options_.marks));
  if (has_fixed_states_) backend_->clear_slot(slot_of(SequenceId(closed - sequences_.begin())));
  closed->pages.resize(pools_.size());
  for (size_t g = 0; g < pools_.size(); ++g) {
    std::vector<int32_t>& pages = closed->pages[g];
    pages.resize(size_t(cache_.pages_for(cache_.groups()[g], tokens)));
    for (int32_t& page : pages) page = pools_[g].take();
  }
  return SequenceId(closed - sequences_.begin());
}

std::optional<SequenceId> Engine::fork(SequenceId from, int64_t position, int64_t tokens) {
  position = std::min(position, at(from).position);
  const auto id = open(tokens);
  if (!id) return {};
  SequenceState& fork = at(*id);
  const SequenceState& origin = at(from);
  if (position > 0 && !holds(origin, position)) return id;  // nothing of it is left to begin with
  if (ropes_.may_change(origin.ropes, tokens)) return id;
  if (has_fixed_states_ && position > 0) {
    if (position != origin.position) return id;
    backend_->copy_slot(slot_of(from), slot_of(*id));
  }
  const int64_t page_tokens = cache_.page_tokens();
  for (size_t g = 0; g < pools_.size(); ++g) {
    const CacheGroup& group = cache_.groups()[g];
    const int64_t first = group.window > 0 ? std::max<int64_t>(0, position - group.window) / page_tokens : 0;
    for (int64_t number = first; number * page_tokens < position; ++number) {
      const int32_t source = origin.pages[g][size_t(number % int64_t(origin.pages[g].size()))];
      int32_t& target = fork.pages[g][size_t(number % int64_t(fork.pages[g].size()))];
      // Pages of windows are written again, and so is the one that the fork goes on in.
      // The draft head writes again at the position before.
      if (group.window == 0 && (number + 1) * page_tokens <= position - (plan_.draft ? 1 : 0)) {
        pools_[g].release(target);
        pools_[g].share(source);
        target = source;
      } else {
        backend_->copy_page(int32_t(g), source, target);
      }
    }
  }
  fork.position = fork.highest = position;
  fork.ropes = origin.ropes;
  if (const auto hidden = hidden_before(origin, position); !hidden.empty()) {
    fork.hidden.assign(hidden.begin(), hidden.end());
    fork.hidden_first = position - 1;
  }
  return id;
}

void Engine::close(SequenceId sequence) {
  SequenceState& state = at(sequence);
  for (size_t g = 0; g < pools_.size(); ++g) {
    for (const int32_t page : state.pages[g]) pools_[g].release(page);
  }
  state = {};
}

bool Engine::holds(const SequenceState& sequence, int64_t position) const {
  for (const CacheGroup& group : cache_.groups()) {
    if (group.window == 0 || position == 0) continue;
    const int64_t page_tokens = cache_.page_tokens();
    const int64_t oldest_page = (sequence.highest - 1) / page_tokens - group.ring + 1;
    if (std::max<int64_t>(0, position - group.window + 1) / page_tokens < oldest_page) return false;
  }
  return true;
}

int64_t Engine::rewind(SequenceId sequence, int64_t position) {
  SequenceState& state = at(sequence);
  if (position < state.position) {
    if (has_fixed_states_) {
      position = restore(sequence, position);
    } else if (plan_.draft) {
      // What comes next is drafted with the token before it.
      if (hidden_before(state, position).empty()) position = std::max<int64_t>(0, position - 1);
      cut_hidden(state, position, {});
    }
    if (!holds(state, position)) position = has_fixed_states_ ? restore(sequence, 0) : 0;
    state.position = position;
  }
  if (state.position == 0) state.highest = 0;
  return state.position;
}

void Engine::mark(SequenceId sequence, int mark) {
  if (!has_fixed_states_ || mark >= options_.marks) return;
  SequenceState& state = at(sequence);
  if (state.marks[size_t(mark)].position == state.position) return;
  backend_->copy_slot(slot_of(sequence), slot_of(sequence, size_t(mark)));
  state.marks[size_t(mark)] = mark_at(state, state.position);
}

Engine::Mark Engine::mark_at(const SequenceState& state, int64_t position) const {
  const std::span<const float> hidden = hidden_before(state, position);
  return {position, {hidden.begin(), hidden.end()}};
}

std::span<const float> Engine::hidden_before(const SequenceState& state, int64_t position) const {
  if (!plan_.draft) return {};
  const int64_t cols = plan_.rows[size_t(plan_.draft->hidden)].cols, row = position - 1 - state.hidden_first;
  if (row < 0 || (row + 1) * cols > int64_t(state.hidden.size())) return {};
  return std::span(state.hidden).subspan(size_t(row * cols), size_t(cols));
}

// Forgets the hidden rows of tokens from `position` on. Where none is left, the one that the mark keeps is taken.
void Engine::cut_hidden(SequenceState& state, int64_t position, const Mark& mark) const {
  if (!plan_.draft) return;
  const int64_t cols = plan_.rows[size_t(plan_.draft->hidden)].cols;
  const int64_t left = std::max<int64_t>(0, position - state.hidden_first) * cols;
  state.hidden.resize(std::min(state.hidden.size(), size_t(left)));
  if (!state.hidden.empty()) return;
  state.hidden = mark.hidden;
  state.hidden_first = mark.position - 1;
}

int64_t Engine::restore(SequenceId sequence, int64_t position) {
  SequenceState& state = at(sequence);
  int best = -1;
  for (size_t i = 0; i < state.marks.size(); ++i) {
    Mark& mark = state.marks[i];
    if (mark.position > position) mark = {};  // of tokens that are forgotten
    if (mark.position > 0 && (best < 0 || mark.position > state.marks[size_t(best)].position)) best = int(i);
  }
  if (best < 0) {
    backend_->clear_slot(slot_of(sequence));
    cut_hidden(state, position, {});
    return 0;
  }
  cut_hidden(state, position, state.marks[size_t(best)]);
  backend_->copy_slot(slot_of(sequence, size_t(best)), slot_of(sequence));
  return state.marks[size_t(best)].position;
}

// Recurrent states that a call has left half done.
void Engine::abandon(SequenceId sequence) {
  if (!has_fixed_states_) return;
  SequenceState& state = at(sequence);
  state.position = restore(sequence, state.position);
  if (!holds(state, state.position)) state.position = restore(sequence, 0);
  if (state.position == 0) state.highest = 0;
}

void Engine::check(std::span<const Work> work) const {
  for (const Work& item : work) {
    const SequenceState& sequence = at(item.sequence);
    const int64_t length = sequence.position + int64_t(item.tokens.size());
    if (length > sequence.room)
      fail(ErrorKind::kRuntime,
           fmt::format("the context is full (expected at most {} tokens, found {})", sequence.room, length));
    for (const TokenId token : item.tokens) {
      if (token < 0 || token >= plan_.model.vocab)
        fail(ErrorKind::kRuntime,
             fmt::format("token {} is not in the model's vocabulary (expected below {})", token, plan_.model.vocab));
    }
  }
}

bool Engine::run(std::span<const Work> work, const ScoresSink& sink, Kernels kernels, const FailedSink& failed) {
  check(work);
  last_scores_ = {};
  std::vector<RopeLengths> ropes_before;
  Call call{work, sink, kernels, failed, {}, std::vector<uint8_t>(work.size())};
  for (const Work& item : work) {
    SequenceState& sequence = at(item.sequence);
    ropes_before.push_back(sequence.ropes);
    ropes_.start(sequence.ropes, sequence.position + int64_t(item.tokens.size()));
    call.progress.total += double(item.tokens.size());
  }
  const int64_t most = backend_->batch_tokens();
  int64_t done = 0;  // tokens of the item at hand
  for (size_t item = 0; item < work.size();) {
    std::vector<Piece> pieces;
    int64_t tokens = 0;
    while (item < work.size() && tokens < most) {
      const int64_t total = call.ended[item] ? done : int64_t(work[item].tokens.size());
      const int64_t count = std::min(most - tokens, total - done);
      if (count > 0) pieces.push_back({item, done, count});
      tokens += count;
      done += count;
      if (done < total) break;  // the batch is full
      ++item;
      done = 0;
    }
    if (pieces.empty()) break;
    const auto abandon_all = [&] {
      for (const Work& w : work) abandon(w.sequence);
    };
    bool done_whole = false;
    try {
      done_whole = run_pieces(call, pieces);
    } catch (...) {
      abandon_all();
      throw;
    }
    if (!done_whole) abandon_all();
    const bool ends = item == work.size();
    const Progress& progress = call.progress;
    if (!done_whole || (observer_ && progress.total > 1 && !observer_(progress.done) && !ends)) {
      // A dynamic base is that of the tokens that were run.
      for (size_t i = 0; i < work.size(); ++i) at(work[i].sequence).ropes = ropes_before[i];
      last_scores_ = {};
      return false;
    }
  }
  return true;
}

// Runs a batch. False if the observer stopped it in the middle.
bool Engine::run_pieces(Call& call, std::span<const Piece> pieces) {
  std::vector<TokenId> tokens;
  std::vector<Segment> segments;
  std::vector<std::pair<size_t, int64_t>> scored;  // item and token of each scored token of the batch
  std::vector<int32_t> scored_at;
  ropes_.clear();
  for (const Piece& piece : pieces) {
    const Work& w = call.work[piece.item];
    SequenceState& sequence = at(w.sequence);
    segments.push_back(
        {int32_t(tokens.size()), int32_t(piece.count), sequence.position, slot_of(w.sequence), sequence.pages});
    if (takes_turns(call, piece)) segments.back().new_slot = spare_slot_;
    if (marked_in(w, piece)) {
      segments.back().marked = int32_t(w.marked - piece.first);
      segments.back().mark_slot = slot_of(w.sequence, size_t(w.mark));
      sequence.marks[size_t(w.mark)] = {};  // until the batch is done
    }
    ropes_.add(sequence.ropes, sequence.position, piece.count);
    for (int64_t t = piece.first; t < piece.first + piece.count; ++t) {
      if (w.scores == Wanted::kAll ? t >= w.first_scored
                                   : w.scores == Wanted::kLast && t + 1 == int64_t(w.tokens.size())) {
        scored.emplace_back(piece.item, t);
        scored_at.push_back(int32_t(tokens.size()));
      }
      tokens.push_back(w.tokens[size_t(t)]);
    }
  }
  Batch batch{tokens, segments, scored_at, &ropes_, call.kernels};
  const std::vector<TokenChoice> choices = choices_of(call, scored);
  batch.choices = choices;
  const bool alone = pieces.size() == 1 && choices.size() == 1;
  const std::optional<NextBatch> next = alone ? next_batch(call, pieces[0]) : std::nullopt;
  const Batch next_as_batch = next ? next->batch(next_ropes_) : Batch();
  if (next) batch.next = &next_as_batch;
  // Whatever becomes of the batch, and of one that is begun behind it, keys may have been written over.
  for (const Piece& piece : pieces) {
    SequenceState& sequence = at(call.work[piece.item].sequence);
    sequence.highest = std::max(sequence.highest, sequence.position + piece.count + (next ? 1 : 0));
  }
  if (!run_batch(batch, pieces, scored, call)) return false;
  if (plan_.draft) follow(batch, call, pieces);
  for (const Piece& piece : pieces) {
    const Work& w = call.work[piece.item];
    if (call.ended[piece.item]) {
      abandon(w.sequence);
      continue;
    }
    SequenceState& sequence = at(w.sequence);
    if (takes_turns(call, piece)) std::swap(slots_[size_t(w.sequence)], spare_slot_);
    if (marked_in(w, piece))
      sequence.marks[size_t(w.mark)] = mark_at(sequence, sequence.position + w.marked - piece.first);
    sequence.position += piece.count;
  }
  return true;
}

// Of texts that do not say, no more is found than the best token. Nothing is drawn that cannot be begun.
std::vector<TokenChoice> Engine::choices_of(const Call& call,
                                            std::span<const std::pair<size_t, int64_t>> scored) const {
  std::vector<TokenChoice> out;
  bool any = false;
  for (const auto& [item, token] : scored) {
    const Work& work = call.work[item];
    out.push_back(work.choices.empty() ? TokenChoice() : work.choices[0]);
    if (!begins_ahead_) out.back().temperature = 0;
    any = any || !work.choices.empty();
  }
  return any ? out : std::vector<TokenChoice>();
}

std::optional<Engine::NextBatch> Engine::next_batch(const Call& call, const Piece& piece) {
  const Work& work = call.work[piece.item];
  // Tokens behind a prompt that is one of many go through other kernels, and traces read rows.
  if (!begins_ahead_ || work.choices.size() < 2 || call.work.size() > 1 || call.kernels == Kernels::kPrompt || trace_ ||
      watch_)
    return {};
  if (piece.first + piece.count < int64_t(work.tokens.size())) return {};
  const SequenceState& sequence = at(work.sequence);
  const int64_t position = sequence.position + piece.count;
  if (position >= sequence.room) return {};
  RopeLengths lengths = sequence.ropes;
  next_ropes_.start(lengths, position + 1);
  next_ropes_.clear();
  next_ropes_.add(lengths, position, 1);
  NextBatch next;
  next.segment = {0, 1, position, slot_of(work.sequence), sequence.pages};
  if (has_fixed_states_) {
    next.segment.new_slot = spare_slot_;
    if (takes_turns(call, piece)) std::swap(next.segment.slot, next.segment.new_slot);
  }
  next.kernels = call.kernels;
  next.choice = work.choices[1];
  return next;
}

bool Engine::marked_in(const Work& work, const Piece& piece) const {
  return keeps_marks() && work.mark < options_.marks && work.marked > piece.first &&
         work.marked <= piece.first + piece.count;
}

// The draft head's input at position t is token t + 1 and the hidden row of token t.
void Engine::follow(const Batch& batch, const Call& call, std::span<const Piece> pieces) {
  const int64_t cols = plan_.rows[size_t(plan_.draft->hidden)].cols;
  hidden_rows_.resize(batch.tokens.size() * size_t(cols));
  backend_->read_row(plan_.draft->hidden, hidden_rows_);
  const auto row = [&](int64_t token) { return hidden_rows_.begin() + token * cols; };
  std::vector<TokenId> tokens;
  std::vector<Segment> segments;
  ropes_.clear();
  for (size_t i = 0; i < pieces.size(); ++i) {
    if (call.ended[pieces[i].item]) continue;
    SequenceState& sequence = at(call.work[pieces[i].item].sequence);
    const Segment& own = batch.segments[i];
    const int64_t end = own.first + own.count;
    const std::span<const float> known = hidden_before(sequence, own.position);
    const std::vector<float> before(known.begin(), known.end());
    const int64_t kept = std::min<int64_t>(own.count, kHiddenTokens);
    keep_hidden(sequence, own.position + own.count - kept, {&*row(end - kept), size_t(kept * cols)});
    // The first token of a sequence has none before it; one that is run again has been here.
    const int32_t skipped = before.empty() ? 1 : 0, count = own.count - skipped;
    if (count == 0) continue;
    const int64_t target = int64_t(tokens.size());  // at most own.first
    float* const rows = hidden_rows_.data();
    std::memmove(rows + (target + 1 - skipped) * cols, rows + own.first * cols,
                 size_t((own.count - 1) * cols) * sizeof(float));
    std::copy(before.begin(), before.end(), row(target));
    const int64_t position = own.position - 1 + skipped;
    ropes_.add(sequence.ropes, position, count);
    segments.push_back({int32_t(target), count, position, own.slot, own.pages});
    tokens.insert(tokens.end(), batch.tokens.begin() + own.first + skipped, batch.tokens.begin() + end);
  }
  if (tokens.empty()) return;
  run_draft_head({tokens, segments, {}, &ropes_, batch.kernels},
                 std::span(hidden_rows_).first(tokens.size() * size_t(cols)));
}

// Appends the hidden rows of the tokens from `position` on. Older rows stay where they reach up to `position`, within
// kHiddenTokens.
void Engine::keep_hidden(SequenceState& state, int64_t position, std::span<const float> rows) const {
  const int64_t cols = plan_.rows[size_t(plan_.draft->hidden)].cols;
  if (hidden_before(state, position).empty()) state.hidden_first = position;
  const int64_t count = int64_t(rows.size()) / cols;
  const int64_t dropped =
      std::clamp<int64_t>(position + count - kHiddenTokens - state.hidden_first, 0, position - state.hidden_first);
  state.hidden.resize(size_t((position - state.hidden_first) * cols));
  state.hidden.erase(state.hidden.begin(), state.hidden.begin() + dropped * cols);
  state.hidden_first += dropped;
  state.hidden.insert(state.hidden.end(), rows.begin(), rows.end());
}

void Engine::run_draft_head(const Batch& batch, std::span<const float> hidden) {
  backend_->write_row(plan_.draft->hidden, hidden);
  backend_->run(batch, plan_.draft->first_step, batch.scored.empty() ? first_scored_draft_step_ : plan_.steps.size());
  backend_->take_overflow({});  // of the head's own keys and values: its guesses are wrong then and are not accepted
}

std::vector<TokenId> Engine::draft(SequenceId id, int64_t position, TokenId token, int64_t most,
                                   const std::function<void(const Scores&)>& sink) {
  std::vector<TokenId> out;
  const SequenceState& sequence = at(id);
  const std::span<const float> known = hidden_before(sequence, position);
  if (known.empty()) return out;
  last_scores_ = {};
  std::vector<float> hidden(known.begin(), known.end());
  const int32_t scored[] = {0};
  most = std::min(most, sequence.room - position + 1);
  for (int64_t at = position - 1; int64_t(out.size()) < most; ++at) {
    RopeLengths lengths = sequence.ropes;
    ropes_.start(lengths, at + 1);
    ropes_.clear();
    ropes_.add(lengths, at, 1);
    const Segment segment{0, 1, at, slot_of(id), sequence.pages};
    run_draft_head({{&token, 1}, {&segment, 1}, scored, &ropes_, Kernels::kByCount, {kGreedyChoices, 1}}, hidden);
    const Scores scores(*backend_, 0);
    if (sink) sink(scores);
    const std::optional<TokenId> best = scores.best();
    if (!best) break;
    out.push_back(token = *best);
    backend_->read_row(plan_.draft->hidden, hidden);
  }
  return out;
}

// Ends the items of a batch with keys or values beyond the range of the cache; the others do not see these.
void Engine::end_overflowed(const Batch& batch, std::span<const Piece> pieces, Call& call) {
  overflows_.resize(batch.tokens.size());
  if (!backend_->take_overflow(overflows_)) return;
  for (size_t i = 0; i < pieces.size(); ++i) {
    const auto own = std::span(overflows_).subspan(size_t(batch.segments[i].first), size_t(batch.segments[i].count));
    const auto found = std::ranges::find_if(own, [](StateId state) { return state >= 0; });
    if (found == own.end()) continue;
    if (!call.failed) throw overflow_error(*found);
    call.ended[pieces[i].item] = true;
    call.failed(pieces[i].item, overflow_error(*found));
  }
}

// Gives out the scores of the items that have not ended. False if the observer stopped it.
bool Engine::run_batch(Batch batch, std::span<const Piece> pieces, std::span<const std::pair<size_t, int64_t>> scored,
                       Call& call) {
  const std::span<const int32_t> wanted = batch.scored;
  const std::span<const TokenChoice> choices = batch.choices;
  const size_t slice = size_t(backend_->scored_tokens());
  const bool observed = observer_ && call.progress.total > 1;
  // All in one call where nothing stands against it.
  const bool at_once = wanted.size() <= slice && !trace_ && !watch_ && !(observed && backend_->runs_in_parts());
  if (at_once) {
    backend_->run(batch, 0, wanted.empty() ? first_scored_step_ : plan_.main_steps());
  } else {
    batch.scored = {};
    batch.choices = {};
    batch.next = nullptr;
    if (!run_steps(batch, 0, first_scored_step_, call.progress)) {
      backend_->take_overflow({});  // of a batch that is given up
      return false;
    }
  }
  // Keys and values are stored by steps that are not scored.
  end_overflowed(batch, pieces, call);
  for (size_t first = 0; first < wanted.size(); first += slice) {
    batch.scored = wanted.subspan(first, std::min(slice, wanted.size() - first));
    if (!choices.empty()) batch.choices = choices.subspan(first, batch.scored.size());
    if (!at_once) run_steps(batch, first_scored_step_, plan_.main_steps(), call.progress);
    for (size_t i = 0; i < batch.scored.size(); ++i) {
      const auto& [item, token] = scored[first + i];
      last_scores_ = call.ended[item] ? Scores() : Scores(*backend_, int64_t(i));
      if (call.sink && !call.ended[item]) call.sink(item, token, last_scores_);
    }
  }
  call.progress.done += double(batch.tokens.size());
  return true;
}

// False if the observer stopped it.
bool Engine::run_steps(const Batch& batch, size_t first, size_t last, const Progress& progress) {
  const bool in_parts = observer_ && progress.total > 1 && backend_->runs_in_parts();
  const bool singly = trace_ || watch_;
  const size_t part = singly ? 1 : in_parts ? (last - first + kObservedParts - 1) / kObservedParts : last - first;
  std::vector<float> values;
  for (size_t at = first; at < last; at += part) {
    const size_t end = std::min(last, at + part);
    if (watch_) watch_(at, BatchRows(*backend_, int64_t(batch.tokens.size())));
    backend_->run(batch, at, end);
    if (trace_) {
      const View view = result_of(plan_.steps[at]);
      values.resize(size_t(view.cols));
      const size_t tokens = plan_.rows[size_t(view.row)].scored ? batch.scored.size() : batch.tokens.size();
      backend_->read(int64_t(tokens) - 1, view, values);
      trace_(at, values);
    }
    const double share = double(end) / double(plan_.main_steps());
    if (in_parts && end < last && !observer_(progress.done + share * double(batch.tokens.size()))) return false;
  }
  return true;
}

Error Engine::overflow_error(StateId state) const {
  int32_t layer = -1;
  for (const Step& step : plan_.steps) {
    const auto* attend = std::get_if<AttendStep>(&step.op);
    if (attend != nullptr && attend->state == state && attend->stores) layer = step.layer;
  }
  return {ErrorKind::kRuntime,
          fmt::format("keys or values of layer {} are beyond the range of the {} cache", layer, kv_name(options_.kv)),
          "--kv bf16 holds them"};
}

}  // namespace qgen
