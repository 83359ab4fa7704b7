// What happens to weights while a model is loaded: repacks run, and everything is looked at once for NaN and Inf.
#pragma once

#include <functional>
#include <memory>
#include <span>

#include "quant/weight.h"

namespace qgen {

// Told now and then how many bytes of the weights are done.
using WeightProgress = std::function<void(size_t bytes_done)>;

// Runs the repacks of all weights that have one, on all cores. Throws a model Error where a file's metadata (an
// act-order index, say) contradicts itself.
void repack_weights(std::span<Weight* const> weights);

// Looks for NaN and Inf in all weights: counts such fp8 codes, and refuses scales that are not finite. An engine
// that copies the weights passes the bytes on as it reads them; for others run() reads all of them.
class WeightScan {
 public:
  explicit WeightScan(std::span<Weight* const> weights, WeightProgress progress = {});
  ~WeightScan();

  // A piece of a weight's data, of whole blocks where it has blocks; from any thread.
  void look(const Weight& weight, std::span<const std::byte> piece);
  void report() const;
  // Brings all weights into memory and looks at them, on all cores, reporting how far it is.
  void run();
  // Once all has been seen: checks the scale grids and sets each weight's nan_codes. A model Error where a scale is NaN
  // or infinite.
  void finish();

 private:
  struct State;
  std::unique_ptr<State> state_;
};

}  // namespace qgen
