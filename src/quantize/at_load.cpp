#include "quantize/at_load.h"

#include <algorithm>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "base/error.h"
#include "quantize/matrix_quantizer.h"
#include "quantize/selection.h"

namespace qgen::quantize {
namespace {

// An unquantized weight as a matrix to read; what needs a repack has it here.
SourceMatrix to_source(const Weight& plain) {
  SourceMatrix out;
  out.name = plain.name;
  out.rows = plain.rows;
  out.cols = plain.cols;
  out.type = float_type(plain.codes);
  out.weight = std::make_shared<Weight>(slice_rows(plain, 0, plain.rows));
  if (plain.repack != nullptr) {
    plain.repack->prepare(*out.weight);
    if (plain.repack->rows) plain.repack->rows(*out.weight, 0, plain.rows);
  }
  out.plain = out.weight->data;
  out.mapped = plain.repack == nullptr && plain.owned.empty();
  return out;
}

// The parts of a matrix that the files have as one (a fused q, k and v) share its scale where the recipe has one for
// the matrix.
struct Siblings {
  std::vector<std::shared_ptr<const Weight>> parts;
  std::once_flag once;
  float largest = 0;

  float find_largest(const Recipe& recipe) {
    std::call_once(once, [&] {
      for (const auto& part : parts) {
        const SourceMatrix matrix = to_source(*part);
        largest = std::max(largest, MatrixQuantizer(matrix, recipe).largest(false));
      }
    });
    return largest;
  }
};

void quantize_weight(Weight& weight, const Weight& plain, const Recipe& recipe, Siblings& siblings) {
  const SourceMatrix matrix = to_source(plain);
  MatrixQuantizer quantizer(matrix, recipe);
  if (siblings.parts.size() > 1) {
    const float largest = siblings.find_largest(recipe);
    const GroupQuantizer scales(recipe, recipe.scale_type(matrix.type));
    quantizer.set_whole_scale(largest == 0 ? Scale{} : scales.from_largest(largest));
  } else {
    quantizer.find_whole_scale(false);
  }
  weight.owned.resize(size_t(weight.rows * weight.cols));
  weight.data = weight.owned;
  const int64_t rows = strip_rows(matrix, recipe);
  for (int64_t first = 0; first < weight.rows; first += rows) {
    const int64_t count = std::min(rows, weight.rows - first);
    quantizer.strip(first, count,
                    std::span(weight.owned).subspan(size_t(first * weight.cols), size_t(count * weight.cols)));
    release_rows(matrix, first, count);
  }
  set_values(weight.scale, recipe.scale_type(matrix.type), quantizer.stored_scales());
}

// The weight that `plain` becomes.
Weight quantized(std::shared_ptr<const Weight> plain, const Recipe& recipe, std::shared_ptr<Siblings> siblings) {
  Weight out;
  out.name = plain->name;
  out.rows = plain->rows;
  out.cols = plain->cols;
  out.codes = recipe.codes();
  out.row_bytes = out.cols;
  out.tensor = plain->tensor;
  out.rounded_from = codes_name(plain->codes);
  // As much of the tensor as the codes are large: what the account and random weights go by until the repack.
  out.data = plain->data.first(std::min(plain->data.size(), size_t(out.rows * out.cols)));
  out.scale = make_grid(out.rows, out.cols, recipe.group_rows(out.rows), recipe.group_cols(out.cols));
  out.scale.type = recipe.scale_type(float_type(plain->codes));
  out.scale.tensor = plain->tensor;
  auto repack = std::make_shared<Weight::Repack>();
  repack->prepare = [plain = std::move(plain), recipe, siblings = std::move(siblings)](Weight& weight) {
    quantize_weight(weight, *plain, recipe, *siblings);
  };
  out.repack = std::move(repack);
  return out;
}

class PlanQuantizer {
 public:
  PlanQuantizer(Plan& plan, const Recipe& recipe, bool head) : plan_(plan), recipe_(recipe), head_(head) {}

  void run() {
    split_tied_head();
    choose();
    if (chosen_.empty()) {
      fail(ErrorKind::kModel,
           fmt::format("--quantize {}: {} has no unquantized matrix ({})", format_name(recipe_.format),
                       plan_.checkpoint.location().name, plan_.method()),
           "the model as it is");
    }
    std::map<std::pair<std::string, std::string>, std::shared_ptr<Siblings>> siblings;
    for (Weight& weight : plan_.weights) {
      if (!chosen_.contains(&weight)) continue;
      auto plain = std::make_shared<const Weight>(std::move(weight));
      std::shared_ptr<Siblings> own = std::make_shared<Siblings>();
      if (recipe_.format == Format::kInt8Tensor || recipe_.format == Format::kFp8Tensor) {
        auto& shared = siblings[{plain->name, plain->tensor}];
        if (shared == nullptr) shared = own;
        own = shared;
      }
      own->parts.push_back(plain);
      weight = quantized(std::move(plain), recipe_, std::move(own));
    }
  }

 private:
  // Where the head is the embedding, one of its own.
  void split_tied_head() {
    if (!head_) return;
    std::set<const Weight*> tables;
    for (const Step& step : plan_.steps) {
      if (const auto* lookup = std::get_if<LookupStep>(&step.op)) tables.insert(lookup->table);
    }
    std::map<const Weight*, const Weight*> heads;  // of each table
    for (Step& step : plan_.steps) {
      auto* linear = std::get_if<LinearStep>(&step.op);
      if (linear == nullptr) continue;
      for (Projection& projection : linear->projections) {
        if (!tables.contains(projection.weight)) continue;
        const Weight*& head = heads[projection.weight];
        if (head == nullptr) {
          plan_.repeated_parameters += projection.weight->rows * projection.weight->cols;
          plan_.weights.push_back(slice_rows(*projection.weight, 0, projection.weight->rows));
          plan_.weights.back().repack = projection.weight->repack;
          head = &plan_.weights.back();
        }
        projection.weight = head;
      }
    }
  }

  void choose() {
    std::set<const Weight*> kept;
    std::set<RowId> routed;
    for (const Step& step : plan_.steps) {
      if (const auto* route = std::get_if<RouteStep>(&step.op)) routed.insert(route->logits.row);
      if (const auto* lookup = std::get_if<LookupStep>(&step.op)) kept.insert({lookup->table, lookup->positions});
    }
    std::vector<const Weight*> found;
    std::vector<Candidate> candidates;
    const auto add = [&](const Weight* weight, bool is_head) {
      const bool plain = !weight->quantized() && weight->scale.empty() && !weight->in_blocks();
      if (!plain || kept.contains(weight)) return;
      if (is_head) {
        chosen_.insert(weight);
      } else {
        found.push_back(weight);
        candidates.push_back({weight->name, weight->rows, weight->cols});
      }
    };
    for (const Step& step : plan_.steps) {
      if (const auto* linear = std::get_if<LinearStep>(&step.op)) {
        for (const Projection& projection : linear->projections) {
          const bool is_head = projection.out.row == plan_.scores;
          if ((is_head && !head_) || routed.contains(projection.out.row)) continue;
          add(projection.weight, is_head);
          if (projection.gate != nullptr) add(projection.gate, false);
        }
      } else if (const auto* experts = std::get_if<ExpertsStep>(&step.op)) {
        for (const auto* bank : {&experts->gate, &experts->up, &experts->down}) {
          for (const Weight* weight : *bank) add(weight, false);
        }
      }
    }
    // As in a checkpoint that is written, but that blocks may be cut off.
    Recipe whole_rows = recipe_;
    if (recipe_.format == Format::kFp8) whole_rows.format = Format::kFp8Channel;
    const auto reasons = reasons_to_keep(candidates, {}, whole_rows);
    for (size_t i = 0; i < found.size(); ++i) {
      if (reasons[i].empty()) chosen_.insert(found[i]);
    }
  }

  Plan& plan_;
  const Recipe& recipe_;
  bool head_;
  std::set<const Weight*> chosen_;
};

}  // namespace

void quantize_at_load(Plan& plan, Format format, bool head) {
  Recipe recipe;
  // GPT-2's INT8 is defined with one scale a matrix (RustML, ADR-005), that of other families with one a row.
  recipe.format = format == Format::kInt8 && plan.model.family == "gpt2" ? Format::kInt8Tensor : format;
  PlanQuantizer(plan, recipe, head).run();
}

}  // namespace qgen::quantize
