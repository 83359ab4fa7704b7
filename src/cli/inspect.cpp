// `qgen inspect`: a checkpoint's family, its quantization with the evidence for it, its tensors and its plan.
#include <algorithm>
#include <map>
#include <memory>

#include <fmt/format.h>

#include "base/units.h"
#include "cli/options.h"
#include "cli/table.h"
#include "cli/terminal.h"
#include "generate/loader.h"
#include "quantize/failed_mark.h"

namespace qgen::cli {
namespace {

struct InspectOptions {
  ModelOptions model;
  bool tensors = false, steps = false, json = false;
};

// Modules that are stored alike: their tensors, and the weight they become.
struct Group {
  std::string layout;   // the row of the table of formats
  std::string tensors;  // "weight F8_E4M3, weight_scale_inv F32"
  std::string method;   // "fp8 block 128x128", "Q8_0, int8 group 32"
  std::vector<std::string> modules;
  size_t bytes = 0;
};

// The weights that each module became: several where one matrix is that of several projections.
std::map<std::string_view, std::vector<const Weight*>> weights_by_module(const Plan& plan) {
  std::map<std::string_view, std::vector<const Weight*>> out;
  for (const Weight& weight : plan.weights) out[weight.name].push_back(&weight);
  return out;
}

// What a matrix is, in the words of its method first: "Q8_0, int8 group 32".
std::string method_text(const Binder::Binding& binding, const Weight& weight) {
  return binding.kind.empty() ? method_name(weight) : fmt::format("{}, {}", binding.kind, method_name(weight));
}

std::vector<Group> groups(const Plan& plan) {
  std::vector<Group> out;
  const auto weights = weights_by_module(plan);
  for (const Binder::Binding& binding : plan.bindings) {
    const Weight& weight = *weights.at(binding.module).front();
    std::string tensors;
    for (const std::string& name : binding.tensors) {
      // Of modules that are stacked, "X[0]", without a dot where the tensor is X itself.
      const size_t module = std::min(binding.module.rfind('['), binding.module.size());
      const std::string_view part = std::string_view(name).substr(std::min(module, name.size()));
      tensors += fmt::format("{}{} {}", tensors.empty() ? "" : ", ",
                             part.empty() ? "stacked" : part.substr(part.starts_with('.') ? 1 : 0),
                             dtype_name(plan.checkpoint.find(name)->dtype));
    }
    const std::string method = method_text(binding, weight);
    auto group = std::find_if(out.begin(), out.end(), [&](const Group& other) {
      return other.layout == binding.format && other.tensors == tensors && other.method == method;
    });
    if (group == out.end()) group = out.insert(out.end(), {std::string(binding.format), tensors, method, {}, 0});
    group->modules.push_back(binding.module);
    for (const Weight* part : weights.at(binding.module)) group->bytes += part->bytes();
  }
  std::stable_sort(out.begin(), out.end(), [](const Group& a, const Group& b) { return a.bytes > b.bytes; });
  return out;
}

// The strings and numbers of some keys of an object, "quant_method fp8, bits 8"; "" for none.
std::string keys_text(const Json& object, std::span<const char* const> keys) {
  std::string out;
  for (const char* key : keys) {
    const auto value = object.get(key);
    if (!value || !(value->is_string() || value->is_integer())) continue;
    out += fmt::format("{}{} ", out.empty() ? "" : ", ", key);
    out += value->is_string() ? std::string(value->as_string()) : fmt::format("{}", value->as_integer());
  }
  return out;
}

// What quanto says the weights of how many modules are: "35 modules qint8".
std::string quanto_text(const Json& modules) {
  std::map<std::string, size_t> types;
  for (const auto& [name, module] : modules.members()) {
    const auto weights = module.is_object() ? module.get("weights") : std::nullopt;
    if (weights && weights->is_string()) ++types[std::string(weights->as_string())];
  }
  std::string out;
  for (const auto& [type, count] : types) out += fmt::format("{}{} modules {}", out.empty() ? "" : ", ", count, type);
  return out;
}

// What the files say about quantization and where, for comparison: "quant_method fp8 (config.json)", or "" where they
// say nothing.
std::string declared_method(const Plan& plan) {
  constexpr const char* kConfigKeys[] = {"quant_method", "format",     "quant_algo", "checkpoint_format",
                                         "bits",         "group_size", "mode"};
  constexpr const char* kMistralKeys[] = {"qformat_weight", "qscheme_act"};
  constexpr const char* kDescriptionKeys[] = {"model_quant_type", "kv_cache_type", "kv_quant_type", "fa_quant_type"};
  std::vector<std::string> out;
  const auto add = [&](const std::string& text, const std::string& file) {
    if (!text.empty()) out.push_back(fmt::format("{} ({})", text, std::filesystem::path(file).filename().string()));
  };
  const Checkpoint& checkpoint = plan.checkpoint;
  if (!checkpoint.location().gguf_files.empty()) {
    std::map<std::string_view, size_t> types;
    for (const TensorView& tensor : checkpoint.tensors()) ++types[dtype_name(tensor.dtype)];
    std::string text;
    for (const auto& [name, count] : types) text += fmt::format("{}{} {}", text.empty() ? "" : ", ", count, name);
    add("tensors: " + text, checkpoint.location().gguf_files.front().string());
  }
  const ModelFiles& files = checkpoint.files();
  const auto read = [&](const char* name) { return JsonDocument::parse(files.read(name), files.subject(name)); };
  if (const auto quant = quantization_of(checkpoint.config())) add(keys_text(*quant, kConfigKeys), "config.json");
  if (const auto side = read_side_file(files)) add(keys_text(side_object(*side), kConfigKeys), side->subject());
  if (files.has("params.json")) {
    const auto params = read("params.json");
    if (const auto object = params->root().get("quantization"); object && object->is_object())
      add(keys_text(*object, kMistralKeys), params->subject());
  }
  if (files.has("quanto_qmap.json")) {
    const auto modules = read("quanto_qmap.json");
    add(quanto_text(modules->root()), modules->subject());
  }
  if (const auto description = read_description(files))
    add(keys_text(description->root(), kDescriptionKeys), description->subject());
  return fmt::format("{}", fmt::join(out, "; "));
}

std::string grid_text(const ScaleGrid& grid) {
  return grid.empty() ? "-"
                      : fmt::format("{}x{} groups of {}x{}", grid.rows, grid.cols, grid.group_rows, grid.group_cols);
}

// The matrices that a step reads.
std::vector<const Weight*> matrices(const Step& step) {
  std::vector<const Weight*> out;
  for_each_weight(step, [&](const Weight& weight, WeightUse) { out.push_back(&weight); });
  return out;
}

// The sizes that people ask for, as the steps have them: of the first attention, and the widest of its kind.
struct Shape {
  int64_t heads = 0, kv_heads = 0, head_dim = 0, intermediate = 0, windows = 0;
  int64_t experts = 0, chosen = 0, expert_width = 0, recurrent = 0;
  bool tied_head = false;
};
Shape shape_of(const Plan& plan) {
  Shape out;
  const Weight* table = nullptr;
  for (const Step& step : plan.steps) {
    // The first; Gemma 4 looks up inputs of its layers as well.
    if (const auto* lookup = std::get_if<LookupStep>(&step.op); lookup != nullptr && table == nullptr)
      table = lookup->table;
    if (const auto* linear = std::get_if<LinearStep>(&step.op))
      out.tied_head = linear->projections.front().weight == table;
    if (const auto* experts = std::get_if<ExpertsStep>(&step.op)) {
      out.experts = experts->experts();
      out.chosen = experts->chosen();
      out.expert_width = experts->width();
    }
    out.recurrent += std::holds_alternative<RecurStep>(step.op);
    const auto* attend = std::get_if<AttendStep>(&step.op);
    if (attend == nullptr) continue;
    out.windows += attend->window > 0;
    if (out.heads > 0) continue;
    out.heads = attend->heads;
    out.kv_heads = attend->kv_heads;
    out.head_dim = attend->key_dim;
  }
  for (const Row& row : plan.rows) {
    if (row.name == "inner") out.intermediate = std::max(out.intermediate, row.cols);
  }
  return out;
}

std::string shape_text(const ModelInfo& m, const Shape& shape) {
  std::string out = fmt::format("{} layers", m.layers);
  if (shape.recurrent > 0) out += fmt::format(" ({} recurrent)", shape.recurrent);
  out += fmt::format(", hidden {}, {} heads of {} ({} kv)", m.hidden, shape.heads, shape.head_dim, shape.kv_heads);
  if (shape.intermediate > 0) out += fmt::format(", ffn {}", shape.intermediate);
  if (shape.experts > 0)
    out += fmt::format(", {} experts of {}, {} a token", shape.experts, shape.expert_width, shape.chosen);
  return out + fmt::format(", vocabulary {}", m.vocab);
}

// What a tensor is part of, and whether it has the codes.
struct Owner {
  const Binder::Binding* binding;
  const Weight* weight;
  bool codes;
};
std::map<std::string_view, Owner> owners(const Plan& plan) {
  std::map<std::string_view, Owner> out;
  const auto weights = weights_by_module(plan);
  for (const Binder::Binding& binding : plan.bindings) {
    const auto size = [&](const std::string& name) { return plan.checkpoint.find(name)->bytes.size(); };
    const auto largest = std::max_element(binding.tensors.begin(), binding.tensors.end(),
                                          [&](const auto& a, const auto& b) { return size(a) < size(b); });
    for (const std::string& name : binding.tensors)
      out[name] = {&binding, weights.at(binding.module).front(), name == *largest};
  }
  return out;
}

std::string file_name(const TensorView& tensor) { return std::filesystem::path(tensor.file).filename().string(); }

std::string summary(const Plan& plan) {
  const ModelInfo& m = plan.model;
  const Shape shape = shape_of(plan);
  std::string out =
      fmt::format("{}{}\n", one_line(plan.checkpoint.location().name),
                  plan.checkpoint.is_blank() ? ": as config.json declares it, the weights are not here" : "");
  const auto line = [&](std::string_view name, const std::string& text) {
    out += fmt::format("  {:<9} {}\n", name, one_line(text));
  };
  line("family", m.family);
  const std::vector<Group> all = groups(plan);
  // The words of the method that most quantized weights have.
  const auto main =
      std::find_if(all.begin(), all.end(), [&](const Group& group) { return group.method.ends_with(plan.method()); });
  line("method", main == all.end() ? plan.method() : main->method);
  for (const Group& group : all) {
    const auto& modules = group.modules;
    line("", fmt::format("{} of {} matrices, {}: {} ({}; layout {})", modules.size(), plan.weights.size(),
                         format_bytes(double(group.bytes)), group.method, group.tensors, group.layout));
    if (modules.size() <= 3) line("", fmt::format("  {}", fmt::join(modules, ", ")));
  }
  const std::string declared = declared_method(plan);
  line("declared", declared.empty() ? "no quantization" : declared);
  line("shape", shape_text(m, shape));
  line("context", fmt::format("{} tokens{}", m.context,
                              shape.windows == 0 ? "" : fmt::format(", sliding windows in {} layers", shape.windows)));
  line("head", shape.tied_head ? "tied to the embedding" : "its own");
  line("size", fmt::format("{} parameters, {} of weights, {} read for a token", plan.parameters(),
                           format_bytes(double(plan.weight_bytes())), format_bytes(double(plan.bytes_per_token()))));
  std::map<std::string, std::pair<size_t, size_t>> files;
  for (const TensorView& tensor : plan.checkpoint.tensors()) {
    auto& [count, bytes] = files[file_name(tensor)];
    ++count;
    bytes += tensor.bytes.size();
  }
  for (const auto& [name, counts] : files)
    line("file", fmt::format("{}: {} tensors, {}", name, counts.first, format_bytes(double(counts.second))));
  std::map<std::string_view, std::vector<std::string_view>> ignored;
  for (const auto& entry : plan.ignored) ignored[entry.reason].push_back(entry.tensor);
  for (const auto& [reason, tensors] : ignored)
    line("ignored", fmt::format("{} tensors ({}{}): {}", tensors.size(), tensors.front(),
                                tensors.size() > 1 ? ", …" : "", reason));
  return out;
}

// "layers.2." before "layers.10.".
bool natural_less(std::string_view a, std::string_view b) {
  const auto digit = [](char c) { return c >= '0' && c <= '9'; };
  while (!a.empty() && !b.empty()) {
    size_t i = 0, j = 0;
    while (i < a.size() && digit(a[i])) ++i;
    while (j < b.size() && digit(b[j])) ++j;
    if (i > 0 && j > 0 && (i != j || a.substr(0, i) != b.substr(0, j)))
      return i != j ? i < j : a.substr(0, i) < b.substr(0, j);
    if (a[0] != b[0]) return a[0] < b[0];
    a.remove_prefix(1);
    b.remove_prefix(1);
  }
  return a.size() < b.size();
}

std::vector<const TensorView*> tensors_by_name(const Plan& plan) {
  std::vector<const TensorView*> out;
  for (const TensorView& tensor : plan.checkpoint.tensors()) out.push_back(&tensor);
  std::sort(out.begin(), out.end(), [](const auto* x, const auto* y) { return natural_less(x->name, y->name); });
  return out;
}

std::string tensor_table(const Plan& plan) {
  const auto owner = owners(plan);
  std::vector<std::vector<std::string>> rows;
  for (const TensorView* tensor : tensors_by_name(plan)) {
    const auto it = owner.find(tensor->name);
    const bool codes = it != owner.end() && it->second.codes;
    rows.push_back({tensor->name, std::string(dtype_name(tensor->dtype)), tensor->shape_text(),
                    codes ? method_text(*it->second.binding, *it->second.weight) : "-",
                    codes ? grid_text(it->second.weight->scale) : "-", file_name(*tensor)});
  }
  return format_table(rows);
}

// "residual > qkv"
std::string rows_text(const Plan& plan, const Step& step) {
  const auto names = [&](const std::vector<RowId>& rows) {
    std::string out;
    for (const RowId row : rows) out += fmt::format("{}{}", out.empty() ? "" : ", ", plan.rows[size_t(row)].name);
    return out;
  };
  const std::string from = names(rows_read(step)), to = names(rows_written(step));
  return from.empty() ? to : fmt::format("{} > {}", from, to);
}

// Shapes and methods of a step's matrices; of more than two alike, as the experts of a mixture are, their number.
std::string shapes_text(const std::vector<const Weight*>& weights) {
  std::vector<std::pair<std::string, size_t>> shapes;
  for (const Weight* weight : weights) {
    std::string shape = fmt::format("({}, {}) {}", weight->rows, weight->cols, method_name(*weight));
    if (shapes.empty() || shapes.back().first != shape) shapes.push_back({std::move(shape), 0});
    ++shapes.back().second;
  }
  std::string out;
  const auto append = [&](std::string_view text) { out += fmt::format("{}{}", out.empty() ? "" : "  ", text); };
  for (const auto& [shape, count] : shapes) {
    if (count > 2) {
      append(fmt::format("{} x {}", count, shape));
    } else {
      for (size_t i = 0; i < count; ++i) append(shape);
    }
  }
  return out;
}

std::string step_table(const Plan& plan) {
  std::vector<std::vector<std::string>> rows;
  for (size_t i = 0; i < plan.steps.size(); ++i) {
    std::string shapes = shapes_text(matrices(plan.steps[i]));
    if (const auto* attend = std::get_if<AttendStep>(&plan.steps[i].op); attend != nullptr && attend->window > 0)
      shapes = fmt::format("window {}", attend->window);
    rows.push_back({fmt::format("{}", i), step_name(plan.steps[i]), rows_text(plan, plan.steps[i]), shapes});
  }
  return format_table(rows, {0});
}

std::string grid_json(const ScaleGrid& grid) {
  if (grid.empty()) return "null";
  return fmt::format(R"({{"tiles":[{},{}],"group":[{},{}]}})", grid.rows, grid.cols, grid.group_rows, grid.group_cols);
}

std::string json(const Plan& plan, const InspectOptions& options) {
  const ModelInfo& m = plan.model;
  const Shape shape = shape_of(plan);
  std::vector<std::string> evidence, ignored;
  for (const Group& group : groups(plan)) {
    std::vector<std::string> modules;
    for (const std::string& module : group.modules) modules.push_back(json_quote(module));
    evidence.push_back(fmt::format(R"({{"method":{},"layout":{},"tensors":{},"bytes":{},"modules":{}}})",
                                   json_quote(group.method), json_quote(group.layout), json_quote(group.tensors),
                                   group.bytes, json_list(modules)));
  }
  for (const auto& entry : plan.ignored)
    ignored.push_back(
        fmt::format(R"({{"tensor":{},"reason":{}}})", json_quote(entry.tensor), json_quote(entry.reason)));
  const std::string declared = declared_method(plan);
  std::string out = fmt::format(
      R"({{"schema":1,"model":{},"family":{},"method":{},"declared":{},"weights_present":{},"parameters":{},"weight_bytes":{},"bytes_per_token":{},)"
      R"("shape":{{"layers":{},"hidden":{},"heads":{},"kv_heads":{},"head_dim":{},"intermediate":{},"vocabulary":{},"context":{},"tied_head":{},"experts":{},"experts_per_token":{},"expert_width":{},"recurrent_layers":{}}},)"
      R"("evidence":{},"ignored":{})",
      json_quote(plan.checkpoint.location().name), json_quote(m.family), json_quote(plan.method()),
      declared.empty() ? "null" : json_quote(declared), !plan.checkpoint.is_blank(), plan.parameters(),
      plan.weight_bytes(), plan.bytes_per_token(), m.layers, m.hidden, shape.heads, shape.kv_heads, shape.head_dim,
      shape.intermediate, m.vocab, m.context, shape.tied_head, shape.experts, shape.chosen, shape.expert_width,
      shape.recurrent, json_list(evidence), json_list(ignored));
  if (options.tensors) {
    const auto owner = owners(plan);
    std::vector<std::string> tensors;
    for (const TensorView* view : tensors_by_name(plan)) {
      const TensorView& tensor = *view;
      const auto it = owner.find(tensor.name);
      tensors.push_back(fmt::format(
          R"({{"name":{},"dtype":{},"shape":[{}],"bytes":{},"file":{},"weight":{},"method":{},"scale":{}}})",
          json_quote(tensor.name), json_quote(dtype_name(tensor.dtype)), fmt::join(tensor.shape, ","),
          tensor.bytes.size(), json_quote(file_name(tensor)),
          it == owner.end() ? "null" : json_quote(it->second.weight->name),
          it == owner.end() ? "null" : json_quote(method_text(*it->second.binding, *it->second.weight)),
          it == owner.end() ? "null" : grid_json(it->second.weight->scale)));
    }
    out += fmt::format(",\"tensors\":{}", json_list(tensors));
  }
  if (options.steps) {
    std::vector<std::string> steps;
    for (const Step& step : plan.steps) {
      std::vector<std::string> weights;
      for (const Weight* weight : matrices(step))
        weights.push_back(fmt::format(R"({{"name":{},"shape":[{},{}],"method":{}}})", json_quote(weight->name),
                                      weight->rows, weight->cols, json_quote(method_name(*weight))));
      steps.push_back(fmt::format(R"({{"step":{},"layer":{},"rows":{},"weights":{}}})", json_quote(step_name(step)),
                                  step.layer < 0 ? "null" : fmt::format("{}", step.layer),
                                  json_quote(rows_text(plan, step)), json_list(weights)));
    }
    out += fmt::format(",\"steps\":{}", json_list(steps));
  }
  return out + "}\n";
}

int inspect(const InspectOptions& options) {
  require_model(options.model);
  const auto plan = open_plan(options.model, true);
  warn(incomplete_warning(*plan));
  warn(quantize::failed_warning(plan->checkpoint.location()));
  std::string out = options.json ? json(*plan, options) : summary(*plan);
  if (!options.json && options.tensors) out += "\n" + tensor_table(*plan);
  if (!options.json && options.steps) out += "\n" + step_table(*plan);
  options.json ? print_stdout(out) : print_table(out);
  return 0;
}

Command::Bound bind() {
  const auto o = std::make_shared<InspectOptions>();
  return {{model_option(o->model),
           model_word(o->model),
           trust_tensors_option(o->model),
           {"--tensors", &o->tensors, "", "list every tensor with its type, shape, method, scale grid and file"},
           {"--steps", &o->steps, "", "list every step that engines execute"},
           {"--json", &o->json, "", "print one JSON object"}},
          [o] { return inspect(*o); }};
}

constexpr Example kExamples[] = {{"qgen inspect Qwen/Qwen3-8B-FP8", "what it is, and what says so"},
                                 {"qgen inspect ./model --tensors | grep scale", "every tensor with its scale grid"}};

}  // namespace

const Command kInspectCommand = {"inspect", "family, quantization found and why, tensors, steps", kExamples, bind};

}  // namespace qgen::cli
