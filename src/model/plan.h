// The plan: a model as a flat list of fused steps with canonical weights. The planner writes it once; the
// memory account, `inspect` and every engine walk the same list.
#pragma once

#include <cstdint>
#include <deque>
#include <functional>
#include <memory>
#include <span>
#include <string>
#include <variant>
#include <vector>

#include "checkpoint/checkpoint.h"
#include "model/description.h"
#include "quant/formats.h"
#include "quant/storage.h"

namespace qgen {

// y = W x + bias
struct Linear {
  const Weight* weight = nullptr;            // (rows, cols)
  const std::vector<float>* bias = nullptr;  // (rows), or none
};

// The steps of a decoder, for T tokens at once. `residual` is (T, hidden).
struct EmbedStep {      // residual = table[token]
  const Weight* table;  // (vocab, hidden)
};
struct QkvStep {                   // q, k, v = W rms_norm(residual)
  const std::vector<float>* norm;  // (hidden)
  Linear q;                        // (heads * head_dim, hidden)
  Linear k, v;                     // (kv_heads * head_dim, hidden)
};
struct RotateStoreStep {  // optional RMS norm of each head of q and k, rotation, q / sqrt(head_dim); k and v into the
                          // cache
  int64_t layer;
  const std::vector<float>* q_norm;  // (head_dim), or none
  const std::vector<float>* k_norm;
};
struct AttendStep {  // mixed = softmax(q k^T) v, causal
  int64_t layer;
  int64_t window;  // a query sees itself and window - 1 tokens before it; 0: all
};
struct OutStep {  // residual += W mixed
  Linear o;       // (hidden, heads * head_dim)
};
struct GateUpStep {                // inner = silu(Wg rms_norm(residual)) * (Wu rms_norm(residual))
  const std::vector<float>* norm;  // (hidden)
  Linear gate, up;                 // (intermediate, hidden)
};
struct DownStep {  // residual += W inner
  Linear down;     // (hidden, intermediate)
};
struct LogitsStep {                // logits = W rms_norm(residual)
  const std::vector<float>* norm;  // (hidden)
  Linear head;                     // (vocab, hidden)
};
using Step = std::variant<EmbedStep, QkvStep, RotateStoreStep, AttendStep, OutStep, GateUpStep, DownStep, LogitsStep>;
std::string_view step_name(const Step& step);
// The linear layers of a step, which read the same input; empty for steps without.
std::vector<Linear> linears(const Step& step);

struct Plan {
  Description model;
  std::vector<Step> steps;
  std::deque<Weight> weights;  // what the steps point to
  std::deque<std::vector<float>> vectors;
  std::vector<Binder::Binding> bindings;  // where each weight comes from
  std::vector<Binder::Ignored> ignored;   // tensors in the files that no step needs
  Checkpoint checkpoint;                  // keeps the mapped files alive

  // The method of most of the quantized bytes ("fp8 block 128x128"), else of the plain ones ("bf16").
  std::string method() const;
  int64_t parameters() const;  // elements of all matrices and vectors
  size_t weight_bytes() const;
  // Bytes of weights that one decoded token reads; of an embedding table it is one row.
  size_t bytes_per_token() const;
  // Keys that all layers' attention looks at for the token at `position`, itself included.
  double keys_seen(int64_t position) const;
  int64_t nan_codes() const;
};

// Binds every tensor that the description names and fuses them into steps. Throws a model Error.
std::unique_ptr<Plan> make_plan(Checkpoint checkpoint);

// What make_plan() asks a checkpoint for: the (rows, cols) weight of a module, or with no cols a vector by the name
// of its tensor. `has` says which tensors are there, where that is optional (biases, a head of its own).
struct TensorRequest {
  std::string name;
  int64_t rows = 0;
  int64_t cols = 0;
};
std::vector<TensorRequest> plan_requests(const Description& model, const std::string& name,
                                         const std::function<bool(const std::string& tensor)>& has);

// How the key-value cache stores an element.
enum class KvType { kF16, kBf16, kF32, kFp8, kInt8 };  // of 8 bits: E4M3 or I8 with an F32 factor for each head's row
std::string_view kv_name(KvType type);
int64_t kv_element_bytes(KvType type);
// Of one head's key or value, its factor included.
int64_t kv_row_bytes(KvType type, int64_t head_dim);
// Bytes of keys and values that the token at `position` reads; sliding windows read less.
double kv_bytes_read(const Plan& plan, int64_t position, KvType type);

// Bytes that running a plan takes.
struct MemoryUse {
  size_t weights = 0;
  size_t kv = 0;
  size_t work = 0;
  size_t total() const { return weights + kv + work; }
};
}  // namespace qgen
