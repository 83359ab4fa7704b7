// Output folders of `quantize`: marks, checksums, and a source whose files stay as they are.
#include "quantize/job.h"

#include "quantize/checksum.h"
#include "quantize/failed_mark.h"
#include "quantize/repacked.h"
#include "tests/quantize/job_options.h"
#include "tests/support.h"

namespace qgen::test {
namespace {

using namespace quantize;

// A copy of a golden without its answers.
fs::path copy_of(const TemporaryFolder& folder, const std::string& golden) {
  const fs::path path = folder.path() / golden;
  fs::create_directories(path);
  for (const auto& entry : fs::directory_iterator(source_folder() / "tests/golden" / golden)) {
    if (entry.is_regular_file()) fs::copy(entry.path(), path);
  }
  return path;
}

}  // namespace

TEST_CASE("matrices are worked on in batches that stay small, in their order") {
  std::vector<SourceMatrix> matrices(40);
  for (size_t i = 0; i < matrices.size(); ++i) {
    matrices[i].rows = i == 7 ? 1 << 20 : 4096;
    matrices[i].cols = i % 2 == 0 ? 4096 : 1024;
  }
  std::vector<const SourceMatrix*> all, seen;
  for (const SourceMatrix& matrix : matrices) all.push_back(&matrix);
  for (const auto batch : in_batches(all)) {
    int64_t elements = 0;
    for (const SourceMatrix* matrix : batch) elements += matrix->rows * matrix->cols;
    CHECK((batch.size() == 1 || elements <= int64_t{64} << 20));
    seen.insert(seen.end(), batch.begin(), batch.end());
  }
  CHECK(seen == all);
  CHECK(in_batches({}).empty());
}

TEST_CASE("xxh64 is that of its specification") {
  const auto of = [](std::string_view text) { return xxh64(std::as_bytes(std::span(text))); };
  CHECK(of("") == 0xEF46DB3751D8E999);
  CHECK(of("a") == 0xD24EC4F1A98C6E5B);
  CHECK(of("abc") == 0x44BC2CF5AD770999);
  CHECK(of("Nobody inspects the spammish repetition") == 0xFBCEA83C8A378BF1);
}

TEST_CASE("quantize: a file of the model is no target, by whatever name") {
  TemporaryFolder folder;
  const fs::path model = copy_of(folder, "llama-bf16"), weights = model / "model.safetensors";
  const std::string before = read_file(weights);
  JobOptions options = options_for(model, weights, quantize::Format::kQ8_0);
  options.force = true;
  ErrorKind kind{};
  CHECK(contains(error_of([&] { run_job(options); }, &kind), "is a file of the model itself"));
  CHECK(kind == ErrorKind::kUsage);
  CHECK(read_file(weights) == before);

  const fs::path link = folder.path() / "link.gguf";
  fs::create_symlink(weights, link);
  options.out = link;
  CHECK(contains(error_of([&] { run_job(options); }), "is a file of the model itself"));

  const fs::path out = folder.path() / "out";
  fs::create_directories(out);
  fs::create_symlink(weights, out / "model.safetensors");
  options = options_for(model, out, quantize::Format::kInt8);
  options.force = true;
  CHECK(contains(error_of([&] { run_job(options); }), "is a file of the model itself"));
  fs::remove(out / "model.safetensors");
  fs::create_symlink(model / "config.json", out / "config.json");
  CHECK(contains(error_of([&] { run_job(options); }), "is a file of the model itself"));
  CHECK(read_file(weights) == before);
  CHECK(contains(read_file(model / "config.json"), "model_type"));
}

TEST_CASE("quantize: a second run into one GGUF file does not replace the first") {
  TemporaryFolder folder;
  const fs::path model = source_folder() / "tests/golden/llama-bf16", out = folder.path() / "out.gguf";
  JobControl control;
  bool begun = false;
  control.comparing = [&](const ShardReport&, size_t, size_t) {  // the file has no name yet
    if (!begun) folder.write("out.gguf", "mine");
    begun = true;
  };
  CHECK(contains(error_of([&] { run_job(options_for(model, out, quantize::Format::kQ8_0), control); }), "File exists"));
  CHECK(begun);
  CHECK(read_file(out) == "mine");
}

TEST_CASE("quantize: a run can be stopped while it compares") {
  TemporaryFolder folder;
  const fs::path model = source_folder() / "tests/golden/llama-bf16";
  for (const auto format : {quantize::Format::kQ8_0, quantize::Format::kInt8}) {
    const fs::path out = folder.path() / std::string(format_name(format));
    bool comparing = false;
    JobControl control;
    control.comparing = [&](const ShardReport&, size_t done, size_t all) { comparing = done < all; };
    control.stopped = [&] { return comparing; };
    CHECK(contains(error_of([&] { run_job(options_for(model, out, format), control); }), "stopped"));
    CHECK(comparing);
    CHECK(fs::exists(out) == (format == quantize::Format::kInt8));  // a folder waits for --resume
  }
}

TEST_CASE("quantize: what is beyond a limit is marked, and loading says so") {
  TemporaryFolder folder;
  const fs::path model = source_folder() / "tests/golden/llama-f32";
  for (const auto format : {quantize::Format::kInt8Tensor, quantize::Format::kQ8_0}) {
    const bool gguf = format == quantize::Format::kQ8_0;
    const fs::path out = folder.path() / (gguf ? "out.gguf" : "out");
    JobOptions options = options_for(model, out, format);
    options.recipe.mode = Mode::kPercentile;  // which clips nearly all
    options.recipe.percentile = 1;
    options.verified = -1;
    CHECK(run_job(options).failed());
    const fs::path mark = gguf ? failed_mark_beside(out) : out / kFailedMark;
    CHECK(contains(read_file(mark), "model.layers.1.mlp.up_proj"));
    const std::string warning = failed_warning(locate_model(out.string()));
    CHECK(contains(warning, " more failed the comparison with the original"));
    // A better one takes the mark away.
    options.recipe.mode = Mode::kMax;
    options.force = true;
    CHECK_FALSE(run_job(options).failed());
    CHECK_FALSE(fs::exists(mark));
    CHECK(failed_warning(locate_model(out.string())).empty());
  }
}

TEST_CASE("quantize: --resume writes again what is no longer what it was") {
  TemporaryFolder folder;
  const fs::path model = copy_of(folder, "llama-shards-index"), out = folder.path() / "out";
  JobOptions options = options_for(model, out, quantize::Format::kInt8);
  JobControl control;
  size_t done = 0;
  control.shard_done = [&](const ShardReport&) { ++done; };
  control.stopped = [&] { return done == 1; };
  CHECK(contains(error_of([&] { run_job(options, control); }), "stopped"));
  CHECK(fs::exists(out / kIncompleteMark));
  fs::path first;
  for (const auto& entry : fs::directory_iterator(out)) {
    if (entry.path().extension() == ".safetensors") first = entry.path();
  }
  const std::string good = read_file(first);
  options.resume = true;
  bool kept = false;
  JobControl stopping;
  stopping.shard_done = [&](const ShardReport& shard) { kept = shard.found; };
  stopping.stopped = [&] { return kept; };
  CHECK(contains(error_of([&] { run_job(options, stopping); }), "stopped"));
  CHECK(kept);
  // A byte of its data, which neither header nor length show.
  std::string bad = good;
  bad.back() = char(bad.back() ^ 1);
  folder.write("out/" + first.filename().string(), bad);
  std::vector<bool> found;
  JobControl noting;
  noting.shard_done = [&](const ShardReport& shard) { found.push_back(shard.found); };
  run_job(options, noting);
  CHECK_FALSE(found.front());
  CHECK(read_file(first) == good);
  CHECK_FALSE(fs::exists(out / kIncompleteMark));
}

TEST_CASE("quantize: --resume notices inputs and statistics that changed") {
  TemporaryFolder folder;
  const fs::path model = copy_of(folder, "llama-shards-index"), out = folder.path() / "out";
  const fs::path statistics = folder.path() / "stats.json";
  fs::copy(source_folder() / "tests/golden-calibration/llama-bf16.json", statistics);
  JobOptions options = options_for(model, out, quantize::Format::kInt8);
  options.recipe.mode = Mode::kMse;
  options.statistics = statistics;
  JobControl control;
  size_t done = 0;
  control.shard_done = [&](const ShardReport&) { ++done; };
  control.stopped = [&] { return done == 1; };
  CHECK(contains(error_of([&] { run_job(options, control); }), "stopped"));
  options.resume = true;
  const auto touch = [](const fs::path& path) {
    fs::last_write_time(path, fs::last_write_time(path) + std::chrono::seconds(2));
  };
  touch(statistics);
  CHECK(contains(error_of([&] { run_job(options); }), "another model or with other options"));
  fs::last_write_time(statistics, fs::last_write_time(statistics) - std::chrono::seconds(2));
  fs::path weights;
  for (const auto& entry : fs::directory_iterator(model)) {
    if (entry.path().extension() == ".safetensors") weights = entry.path();
  }
  touch(weights);
  CHECK(contains(error_of([&] { run_job(options); }), "another model or with other options"));
}

TEST_CASE("quantize: chat templates in a folder come along, declarations of a quantization do not") {
  TemporaryFolder folder;
  const fs::path model = copy_of(folder, "llama-bf16"), out = folder.path() / "out";
  folder.write("llama-bf16/additional_chat_templates/tool_use.jinja", "{{ messages }}");
  folder.write("llama-bf16/quantum_notes.txt", "kept");
  folder.write("llama-bf16/quantize_config.json", "{}");
  folder.write("llama-bf16/quant_model_description_w8a8.json.old", "kept");
  run_job(options_for(model, out, quantize::Format::kInt8));
  CHECK(read_file(out / "additional_chat_templates/tool_use.jinja") == "{{ messages }}");
  CHECK(fs::exists(out / "quantum_notes.txt"));
  CHECK_FALSE(fs::exists(out / "quantize_config.json"));
}

}  // namespace qgen::test
