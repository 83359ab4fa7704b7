// What executes a plan: several sequences of tokens over one backend. An engine owns the sequences, their pages of the
// cache and their rotations, cuts work into batches, and tells observers and traces how it goes.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/error.h"
#include "base/token.h"
#include "engine/backend.h"
#include "engine/options.h"
#include "engine/scores.h"
#include "model/plan.h"

namespace qgen {

using SequenceId = int32_t;

enum class Wanted : uint8_t { kNone, kLast, kAll };

// Tokens to append to a sequence, and which scores are wanted: none, those after the last token, or those after each
// from number `first_scored` on.
struct Work {
  SequenceId sequence = 0;
  std::span<const TokenId> tokens;
  Wanted scores = Wanted::kLast;
  int64_t first_scored = 0;
  // Behind so many of the tokens the sequence is marked, as Engine::mark() does it, with this number; 0: it is not.
  int64_t marked = 0;
  int mark = 0;
  // How the token that follows these is likely chosen, and the one after that. Two entries: the token that follows the
  // last one may be begun before it is asked for. One: only its best scores are found. Empty: nothing is known. Results
  // are the same with all. Where the scores after each token are wanted, the first entry holds for all of them.
  std::span<const TokenChoice> choices = {};
};

// Receives the scores that follow token `index` of work item `item`; valid during the call, or as long as
// Engine::scored_at_once() says.
using ScoresSink = std::function<void(size_t item, int64_t index, const Scores& scores)>;
// Receives the Error that ends work item `item`.
using FailedSink = std::function<void(size_t item, const Error& error)>;
// Receives what a step wrote for the last token of a batch (tests compare engines with it).
using StepTrace = std::function<void(size_t step, std::span<const float> values)>;
// The rows of a batch between two of its steps.
class BatchRows {
 public:
  BatchRows(Backend& backend, int64_t tokens) : backend_(backend), tokens_(tokens) {}

  int64_t tokens() const { return tokens_; }
  // Of a row that is not scored, the values of a token.
  void read(int64_t token, const View& view, std::span<float> out) const { backend_.read(token, view, out); }

 private:
  Backend& backend_;
  int64_t tokens_;
};
// Told of each batch before a step runs: what the step is about to read.
using StepWatch = std::function<void(size_t step, const BatchRows& rows)>;
// Told now and then while many tokens are run how many of the call's are done (a part of the layers counts as its share
// of the batch); stops the call by returning false.
using RunObserver = std::function<bool(double tokens_done)>;

class Engine {
 public:
  Engine(const Plan& plan, const EngineOptions& options, std::unique_ptr<Backend> backend);
  Engine(const Engine&) = delete;

  const Plan& plan() const { return plan_; }
  std::string description() const { return backend_->description(); }  // "cpu avx2, 16bit activations, 2 threads"
  // What was asked for, or the next more precise that this engine has for the model.
  Activations activations() const { return backend_->activations(); }
  MemoryUse memory() const { return backend_->memory(); }

  // A new sequence with room for `tokens`; nothing where sequences or pages are lacking.
  std::optional<SequenceId> open(int64_t tokens);
  // One that begins with the first `position` tokens of another, whose pages it shares where they are whole; with none
  // where the keys that are there are not those of a sequence of its own: of windows that went on, of recurrent states
  // elsewhere, of a dynamic rotation whose base may have changed within `tokens`.
  std::optional<SequenceId> fork(SequenceId from, int64_t position, int64_t tokens);
  // Whether a fork can begin with fewer tokens than its origin has: recurrent states are those of one position.
  bool forks_anywhere() const { return !has_fixed_states_; }
  void close(SequenceId sequence);
  int64_t position(SequenceId sequence) const { return at(sequence).position; }  // tokens in it
  // Forgets all tokens from `position` on, and perhaps more: returns how many are left. The caller
  // runs the others again. Recurrent states can only go back to a mark, or to nothing.
  int64_t rewind(SequenceId sequence, int64_t position);
  // Keeps the recurrent states that the sequence has now, as its mark number `mark` (below EngineOptions::marks) in
  // place of what that was before. Free of cost where the model has none.
  void mark(SequenceId sequence, int mark);
  bool keeps_marks() const { return has_fixed_states_ && options_.marks > 0; }
  // Guesses of the plan's draft head at what follows `token`, which is about to be run at `position`: at most `most`,
  // each the best of its scores, which go to `sink` where there is one. The tokens before must have been run. None
  // where what the model made of the last of them is no longer known. Ends what last_scores() are.
  std::vector<TokenId> draft(SequenceId sequence, int64_t position, TokenId token, int64_t most,
                             const std::function<void(const Scores& scores)>& sink = {});

  // Appends each item's tokens to its sequence. Scores go to `sink` where there is one; of the last item, those after
  // its last token stay as last_scores(). Tokens must be in the vocabulary and fit in their sequences. False where the
  // observer stopped it: position() then says how many tokens a sequence has, of recurrent models perhaps fewer than
  // before. Throws a runtime Error. With `failed`, an item whose keys or values are beyond the range of the cache's
  // type ends alone, without scores: its Error goes there, and the other items are run as if it were not among them.
  bool run(std::span<const Work> work, const ScoresSink& sink = {}, Kernels kernels = Kernels::kByCount,
           const FailedSink& failed = {});
  Scores last_scores() const { return last_scores_; }
  // The scores of a call with no more tokens than this are all there until the engine runs again.
  int64_t scored_at_once() const { return std::min(backend_->batch_tokens(), backend_->scored_tokens()); }

  void set_trace(StepTrace trace) { trace_ = std::move(trace); }
  void set_watch(StepWatch watch) { watch_ = std::move(watch); }
  void set_observer(RunObserver observer) { observer_ = std::move(observer); }

 private:
  struct Mark {
    int64_t position = -1;      // -1: none
    std::vector<float> hidden;  // of the token before it, where there is a draft head
  };
  struct SequenceState {
    bool open = false;
    int64_t position = 0;
    int64_t highest = 0;  // position that it ever had: pages of windows hold the last tokens before that
    int64_t room = 0;
    std::vector<std::vector<int32_t>> pages;  // of each group, by page number modulo the ring
    RopeLengths ropes;
    std::vector<Mark> marks;
    // Hidden rows of the latest tokens, of number `hidden_first` and those behind it, for the draft head.
    std::vector<float> hidden;
    int64_t hidden_first = 0;
  };
  struct Progress {
    double done = 0, total = 0;  // tokens
  };
  // Tokens of a work item that are in a batch.
  struct Piece {
    size_t item = 0;
    int64_t first = 0, count = 0;
  };
  // What a call of run() was given, and how far it is.
  struct Call {
    std::span<const Work> work;
    const ScoresSink& sink;
    Kernels kernels;
    const FailedSink& failed;
    Progress progress;
    std::vector<uint8_t> ended;  // of each item: whether it has failed
  };
  // A batch of one token whose id is not known yet.
  struct NextBatch {
    TokenId token = 0;
    Segment segment;
    int32_t scored = 0;
    Kernels kernels;
    TokenChoice choice;

    Batch batch(const RopeRows& ropes) const {
      return {{&token, 1}, {&segment, 1}, {&scored, 1}, &ropes, kernels, {&choice, 1}};
    }
  };
  const SequenceState& at(SequenceId sequence) const { return sequences_[size_t(sequence)]; }
  SequenceState& at(SequenceId sequence) { return sequences_[size_t(sequence)]; }
  void check(std::span<const Work> work) const;
  // Whether the keys and values before `position` that windows need are still there.
  bool holds(const SequenceState& sequence, int64_t position) const;
  bool run_pieces(Call& call, std::span<const Piece> pieces);
  // How the tokens that follow the scored ones are likely chosen, (scored); empty where nothing is known.
  std::vector<TokenChoice> choices_of(const Call& call, std::span<const std::pair<size_t, int64_t>> scored) const;
  // The batch that is likely to follow one of this piece; nothing where it cannot be begun before it is asked for.
  std::optional<NextBatch> next_batch(const Call& call, const Piece& piece);
  bool run_batch(Batch batch, std::span<const Piece> pieces, std::span<const std::pair<size_t, int64_t>> scored,
                 Call& call);
  void end_overflowed(const Batch& batch, std::span<const Piece> pieces, Call& call);
  // Slots of the states of fixed size: first one for each sequence, then one for each mark, and a spare one, which
  // changes places with that of a sequence (takes_turns()).
  int32_t slot_of(SequenceId sequence) const { return slots_[size_t(sequence)]; }
  int32_t slot_of(SequenceId sequence, size_t mark) const {
    return int32_t(options_.sequences) + sequence * options_.marks + int32_t(mark);
  }
  // Puts recurrent states back to the last mark at or before `position`, or to nothing; returns where that is.
  int64_t restore(SequenceId sequence, int64_t position);
  void abandon(SequenceId sequence);
  // Whether the states of fixed size go to the spare slot: those of a single token, which may have been begun ahead.
  bool takes_turns(const Call& call, const Piece& piece) const {
    return begins_ahead_ && has_fixed_states_ && call.work.size() == 1 && piece.count == 1;
  }
  // Whether the work is marked behind a token of the piece.
  bool marked_in(const Work& work, const Piece& piece) const;
  Mark mark_at(const SequenceState& state, int64_t position) const;
  // The hidden row of the token before `position`; empty where it is not known, or there is no draft head.
  std::span<const float> hidden_before(const SequenceState& state, int64_t position) const;
  void cut_hidden(SequenceState& state, int64_t position, const Mark& mark) const;
  void keep_hidden(SequenceState& state, int64_t position, std::span<const float> rows) const;
  // Runs the draft head over a batch that the model has run, so that it has keys and values for these tokens.
  void follow(const Batch& batch, const Call& call, std::span<const Piece> pieces);
  // With the hidden rows of the tokens before those of the batch.
  void run_draft_head(const Batch& batch, std::span<const float> hidden);
  bool run_steps(const Batch& batch, size_t first, size_t last, const Progress& progress);
  Error overflow_error(StateId state) const;

  const Plan& plan_;
  const EngineOptions options_;
  std::unique_ptr<Backend> backend_;
  CacheLayout cache_;
  std::vector<PagePool> pools_;  // of each group
  std::vector<SequenceState> sequences_;
  std::vector<int32_t> slots_;  // of each sequence
  int32_t spare_slot_;
  RopeRows ropes_, next_ropes_;  // of a batch, and of the one that is likely to follow
  size_t first_scored_step_ = 0, first_scored_draft_step_ = 0;
  const bool has_fixed_states_;
  const bool begins_ahead_;  // not where draft heads run between two tokens
  StepTrace trace_;
  StepWatch watch_;
  RunObserver observer_;
  Scores last_scores_;
  std::vector<float> hidden_rows_;  // of a batch, for the draft head
  std::vector<StateId> overflows_;  // of a batch's tokens
};

// Slots of states of fixed size that an engine has, but for a spare one where its backend begins_ahead(): see
// has_spare_slot().
int64_t state_slots(const EngineOptions& options);
// Whether tokens of such a model are begun ahead and have states of fixed size.
bool has_spare_slot(const Plan& plan);
// Throws a usage Error where the model cannot see so many tokens at all.
void check_context(const Plan& plan, int64_t context);
// The limits of the cache of an engine whose backend runs batches of so many tokens.
CacheLimits cache_limits(const EngineOptions& options, int64_t batch_tokens);

}  // namespace qgen
