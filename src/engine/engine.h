// What executes a plan. An engine holds the weights where it computes and one timeline of tokens with its
// key-value cache.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/token.h"
#include "model/plan.h"

namespace qgen {

// How precisely the inputs of linear layers are multiplied: as floats; as 16-bit integers or floats of 16 bits or more;
// or, where many tokens meet weights that allow it, in 8 bits: on the CPU INT8 weights, with a scale for every 32
// inputs; on GPUs INT8 and FP8 ones, with a scale for every token or every 128. But for the first, attention of many
// tokens is done in 16-bit numbers too.
enum class Activations : uint8_t { kF32, k16Bit, k8Bit };
std::string_view activations_name(Activations activations);

struct EngineOptions {
  int64_t context = 0;  // tokens the cache holds
  KvType kv = KvType::kF16;
  Activations activations = Activations::k16Bit;
  int threads = 0;             // 0: a physical core each, fewer for a small model
  std::string body;            // CPU: an instruction set by name; "": the best one
  int device_index = 0;        // GPU: which of several
  WeightScan* scan = nullptr;  // engines outside of ram: where given, shown the weights on their way there
  int64_t batch = 0;           // GPU: tokens of a prompt that go through the plan together; 0: 2048
};

// Receives the scores of the token that follows token `index` of the call; valid during the call.
using LogitsSink = std::function<void(int64_t index, std::span<const float> logits)>;
// Receives what a step produced for the last token of a call (tests compare engines with it).
using StepTrace = std::function<void(size_t step, std::span<const float> values)>;
// Told now and then while many tokens are run how many of the call's are done (a layer counts as its share of a
// token); stops the call by returning false. Called on one thread at a time, not always the caller's.
using PrefillObserver = std::function<bool(double tokens_done)>;

class Engine;

// The scores (vocab) of the token that comes next, until the engine's next call. Where an engine has them in the memory
// of a device, they are brought only when all are asked for.
class Scores {
 public:
  Scores() = default;  // none: the call was stopped
  Scores(std::span<const float> all) : all_(all) {}
  // Those that the engine's last call ended with.
  explicit Scores(Engine& engine) : engine_(&engine) {}

  bool empty() const { return engine_ == nullptr && all_.empty(); }
  std::span<const float> all() const;
  operator std::span<const float>() const { return all(); }
  // Whether all are numbers.
  bool finite() const;
  // The best `count` and perhaps more (of one alone: no other is higher, and it is the first of those that tie), with
  // their mass where a temperature is given. None where they cannot be had for less than all.
  TopScores top(size_t count, double temperature = 0) const;

 private:
  std::span<const float> all_;
  Engine* engine_ = nullptr;
};

class Engine {
 public:
  virtual ~Engine() = default;

  // "cpu avx512-bf16, 16bit activations, 2 threads"
  virtual std::string description() const = 0;
  // What was asked for, or the next more precise that this engine has for the model.
  virtual Activations activations() const = 0;
  // Appends tokens to the timeline and returns the scores (vocab) of the next one; `each`, where given, gets
  // those after every token. Tokens must be in the vocabulary and fit in the context. The result is valid
  // until the next call. Nothing is returned where the observer stopped it: position() then says how many
  // tokens were appended. Throws a runtime Error.
  virtual Scores prefill(std::span<const TokenId> tokens, const LogitsSink& each = {}) = 0;
  virtual Scores decode(TokenId token) { return prefill({&token, 1}); }
  // Forgets all tokens from `position` on.
  virtual void rewind(int64_t position) = 0;
  virtual int64_t position() const = 0;  // tokens in the timeline
  virtual MemoryUse memory() const = 0;
  virtual void set_trace(StepTrace trace) = 0;
  virtual void set_observer(PrefillObserver observer) = 0;

 protected:
  friend class Scores;
  // For engines that return Scores(*this): what those ask for.
  virtual std::span<const float> all_scores() { return {}; }
  virtual bool scores_finite() { return true; }
  virtual TopScores top_scores(size_t /*count*/, double /*temperature*/) { return {}; }
};

// What a device can do at best, as measured on the spot on the threads that an engine would use. Operations are
// multiplications and additions: of 8-bit integers, and of the floats whose products are fastest there.
struct DeviceSpeed {
  double read_bytes_per_second = 0;
  double int8_ops_per_second = 0;
  double float_ops_per_second = 0;
};

// The table of engines, best first.
struct EngineRow {
  std::string_view name;  // --device NAME
  std::string_view summary;
  std::string_view memory;  // what it computes in: "ram", "vram"
  bool in_ram() const { return memory == "ram"; }
  bool (*available)();
  std::string (*problem)();                             // why it is not; null for what always is
  size_t (*free_memory)(const EngineOptions& options);  // bytes that a model may take there; 0 if unknown
  bool (*holds)(KvType kv);                             // as the type of its key-value cache
  // What memory() of the engine will say, without building it.
  MemoryUse (*account)(const Plan& plan, const EngineOptions& options);
  std::unique_ptr<Engine> (*make)(const Plan& plan, const EngineOptions& options);
  // Threads worth using for a plan where nobody says; 1 for engines without threads.
  int (*useful_threads)(const Plan& plan);
  // Takes a fraction of a second; the peaks of arithmetic only where they are wanted. Null: not for speed.
  DeviceSpeed (*measure)(const EngineOptions& options, bool peaks);
};
std::span<const EngineRow> engines();
// Of a program that was built with an engine for GPUs (kernels/); else null.
const EngineRow* gpu_engine();

// The row for `device`: auto, or a row's name, for the CPU also with an instruction set ("cpu:avx2", which goes into
// options.body), for GPUs with which of them ("cuda:1"). Throws a usage Error for an unknown name, a device Error for
// an absent device.
const EngineRow& find_engine(std::string_view device, EngineOptions& options);

std::unique_ptr<Engine> make_reference_engine(const Plan& plan, const EngineOptions& options);
MemoryUse account_reference_engine(const Plan& plan, const EngineOptions& options);
std::unique_ptr<Engine> make_cpu_engine(const Plan& plan, const EngineOptions& options);  // src/cpu
MemoryUse account_cpu_engine(const Plan& plan, const EngineOptions& options);
DeviceSpeed measure_cpu(const EngineOptions& options, bool peaks);
int useful_cpu_threads(const Plan& plan);
// A runtime Error if tokens do not fit in the context or are not in the vocabulary.
void check_tokens(std::span<const TokenId> tokens, int64_t position, int64_t context, int64_t vocab);

// The rotation of a timeline: cos and sin for every position, (positions, head_dim / 2) each, times the
// attention factor. With a dynamic base they depend on the length of the sequence when a token comes in, and
// keys keep the rotation they were stored with (as transformers does with a cache).
class RotaryTable {
 public:
  RotaryTable(const Rope& rope, int64_t head_dim);
  // Before the tokens of a call, which make the timeline `length` long.
  void start(int64_t length);
  // The rotations of tokens first .. first + count - 1.
  void compute(int64_t first, int64_t count);
  std::span<const double> cos(int64_t index) const { return {cos_.data() + index * half_, size_t(half_)}; }
  std::span<const double> sin(int64_t index) const { return {sin_.data() + index * half_, size_t(half_)}; }

 private:
  Rope rope_;
  int64_t head_dim_;
  int64_t half_;
  int64_t longest_ = 0;  // the longest timeline seen, which sets the dynamic base
  std::vector<double> frequencies_;
  std::vector<double> cos_, sin_;  // (count, half)
};

}  // namespace qgen
