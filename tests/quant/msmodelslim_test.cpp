// msModelSlim's layouts on small matrices: scales and offsets of every shape and type, biases out of quant_bias, and
// clear errors for files that are none.
#include <bit>
#include <cmath>

#include "base/numbers.h"
#include "tests/quant/small_checkpoint.h"

namespace qgen::test {
namespace {

const std::vector<int8_t> kCodes = {3, -2, 7, 1, -128, 127, 0, 5};
const std::vector<std::string> kAll = {""};  // prefixes of the model's tensors
const std::string kDescription = "quant_model_description.json";

SmallCheckpoint codes(const std::string& type = "W8A16") {
  SmallCheckpoint out;
  out.add("x.weight", Dtype::kI8, {2, 4}, kCodes);
  out.text(kDescription, R"({"model_quant_type":")" + type + R"(","x.weight":")" + type + R"("})");
  return out;
}

int64_t bits_of(float value) { return int64_t(std::bit_cast<int32_t>(value)); }  // widened with its sign

// A static W8A8 layer with input_scale 0.05 and input_offset -10.
SmallCheckpoint static_layer() {
  SmallCheckpoint out = codes("W8A8");
  out.add<float>("x.input_scale", Dtype::kF32, {1}, {0.05f});
  out.add<float>("x.input_offset", Dtype::kF32, {1}, {-10});
  out.add<int32_t>("x.quant_bias", Dtype::kI32, {2}, {690, -6960});
  return out;
}

std::vector<float> bias_of(const SmallCheckpoint& small) {
  const Checkpoint checkpoint = small.make();
  Binder binder(checkpoint);
  static_cast<void>(binder.matrix("x", 2, 4));
  const auto bias = binder.bias("x", 2, 4);
  REQUIRE(bias.has_value());
  CHECK(binder.finish(kAll, {}, "test").size() <= 2);  // but for X.bias and X.input_scale nothing is left over
  return bias->values();
}

TEST_CASE("W8A16 offsets and scales are read in every shape and type") {
  const auto check = [](const SmallCheckpoint& small, const std::vector<double>& scale,
                        const std::vector<double>& offset) {
    const std::vector<double> w = loaded_matrix(small, "x", 2, 4);
    for (size_t i = 0; i < 8; ++i) {
      const size_t group = scale.size() == 1 ? 0 : i * scale.size() / 8;
      CHECK(w[i] == (kCodes[i] - offset[group]) * scale[group]);
    }
  };
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{2}, {2, 1}}) {
    check(codes()
              .add<float>("x.weight_scale", Dtype::kF32, shape, {0.5f, 0.1f})
              .add<float>("x.weight_offset", Dtype::kF32, shape, {3, -7}),
          {0.5, double(0.1f)}, {3, -7});
  }
  check(codes()
            .add<uint16_t>("x.weight_scale", Dtype::kF16, {2, 1}, {float_to_f16(0.5f), float_to_f16(0.25f)})
            .add<uint16_t>("x.weight_offset", Dtype::kBf16, {2, 1}, {float_to_bf16(3), float_to_bf16(0)}),
        {0.5, 0.25}, {3, 0});
  for (const std::vector<int64_t>& shape : {std::vector<int64_t>{2, 2}, {4, 1}, {4}}) {
    check(codes()
              .add<float>("x.weight_scale", Dtype::kF32, shape, {0.5f, 0.25f, 2, 4})
              .add<float>("x.weight_offset", Dtype::kF32, shape, {1, 2, 3, 4}),
          {0.5, 0.25, 2, 4}, {1, 2, 3, 4});
  }
  check(codes()
            .add<float>("x.weight_scale", Dtype::kF32, {1}, {0.5f})
            .add<float>("x.weight_offset", Dtype::kF32, {1}, {3}),
        {0.5}, {3});
}

TEST_CASE("W8A8 without weight_scale has deq_scale / input_scale, as an F32 or as its bits") {
  for (const bool as_bits : {false, true}) {
    SmallCheckpoint small = static_layer();
    const float scales[] = {5e-4f, 1e-4f};
    if (as_bits) {
      CHECK(bits_of(0.0015f) == 985963430);
      small.add<int64_t>("x.deq_scale", Dtype::kI64, {2}, {bits_of(scales[0]), bits_of(scales[1])});
    } else {
      small.add<float>("x.deq_scale", Dtype::kF32, {2}, {scales[0], scales[1]});
    }
    const std::vector<double> w = loaded_matrix(small, "x", 2, 4);
    for (size_t i = 0; i < 8; ++i) CHECK(w[i] == kCodes[i] * double(scales[i / 4] / 0.05f));
    // bias = (quant_bias + sum(codes) input_offset) deq_scale
    const std::vector<float> bias = bias_of(small);
    CHECK(bias[0] == float((690 - 90) * double(scales[0])));
    CHECK(bias[1] == float((-6960 - 40) * double(scales[1])));
  }
}

TEST_CASE("a part of a weight whose scales are made at load has its own") {
  SmallCheckpoint small = static_layer();
  small.add<float>("x.deq_scale", Dtype::kF32, {2}, {5e-4f, 1e-4f});
  const Checkpoint checkpoint = small.make();
  Binder binder(checkpoint);
  Weight part = slice_rows(binder.matrix("x", 2, 4), 1, 1);
  Weight* const weights[] = {&part};
  repack_weights(weights);
  scan_weights(weights);
  std::vector<double> row(4);
  dequantize_row(part, 0, row);
  for (size_t k = 0; k < 4; ++k) CHECK(row[k] == kCodes[4 + k] * double(1e-4f / 0.05f));
}

TEST_CASE("weight_scale counts where both are there, and a stored bias is part of quant_bias already") {
  SmallCheckpoint small = static_layer();
  small.add<float>("x.deq_scale", Dtype::kF32, {2}, {5e-4f, 1e-4f});
  small.add<float>("x.weight_scale", Dtype::kF32, {2, 1}, {0.01f, 0.002f});
  small.add<float>("x.weight_offset", Dtype::kF32, {2, 1}, {0, 0});
  small.add<float>("x.bias", Dtype::kF32, {2}, {99, 99});
  const std::vector<double> w = loaded_matrix(small, "x", 2, 4);
  CHECK(w[2] == 7 * double(0.01f));
  CHECK(bias_of(small)[0] == float(600 * double(5e-4f)));
}

TEST_CASE("FP8 codes have offsets of zero, MXFP8 codes exponents") {
  const std::vector<uint8_t> ones(64, 0x38);
  SmallCheckpoint small;
  small.add("x.weight", Dtype::kF8E4M3, {2, 32}, ones);
  small.text(kDescription, R"({"x.weight":"WFP8AFP8_DYNAMIC"})");
  small.add<float>("x.weight_scale", Dtype::kF32, {2, 1}, {0.5f, 3});
  SmallCheckpoint bad = small;
  small.add<float>("x.weight_offset", Dtype::kF32, {2, 1}, {0, 0});
  CHECK(loaded_matrix(small, "x", 2, 32)[63] == 3);
  bad.add<float>("x.weight_offset", Dtype::kF32, {2, 1}, {0, 1});
  CHECK(contains(error_of([&] { loaded_matrix(bad, "x", 2, 32); }), "x.weight_offset: not zero"));

  SmallCheckpoint exponents;
  exponents.add("x.weight", Dtype::kF8E4M3, {1, 64}, ones);
  exponents.text(kDescription, R"({"x.weight":"W8A8_MXFP8"})");
  exponents.add<uint8_t>("x.weight_scale", Dtype::kU8, {1, 2}, {126, 129});
  const std::vector<double> w = loaded_matrix(exponents, "x", 1, 64);
  CHECK(w[31] == 0.5);
  CHECK(w[32] == 4);
}

TEST_CASE("a layer behind a multiplier of its input is found in its wrapper") {
  SmallCheckpoint small;
  small.text(kDescription, R"({"x.linear.weight":"FLOAT"})");
  small.add("x.linear.weight", Dtype::kI8, {2, 4}, kCodes);
  small.add<float>("x.linear.weight_scale", Dtype::kF32, {2, 1}, {1, 2});
  small.add<float>("x.linear.weight_offset", Dtype::kF32, {2, 1}, {0, 0});
  small.add<float>("x.linear.bias", Dtype::kF32, {2}, {5, 6});
  small.add<float>("x.div.mul_scale", Dtype::kF32, {4}, {1, 2, 3, 4});
  CHECK(loaded_matrix(small, "x", 2, 4)[5] == 254);
  const Checkpoint checkpoint = small.make();
  Binder binder(checkpoint);
  CHECK(binder.has_matrix("x"));
  CHECK(binder.matrix("x", 2, 4).name == "x");
  CHECK(binder.bias("x", 2, 4)->values() == std::vector<float>{5, 6});
  CHECK(binder.input_scale("x", 4)->values() == std::vector<float>{1, 2, 3, 4});
  CHECK(binder.finish(kAll, {}, "test").empty());
}

TEST_CASE("what is no msModelSlim layer is refused with its tensor's name") {
  const auto error = [](const SmallCheckpoint& small) {
    ErrorKind kind = ErrorKind::kRuntime;
    const std::string message = error_of(
        [&] {
          loaded_matrix(small, "x", 2, 4);
          bias_of(small);
        },
        &kind);
    CHECK(kind == ErrorKind::kModel);
    return message;
  };
  CHECK(contains(error(codes("W4A8_DYNAMIC")), "x.weight: msModelSlim's type 'W4A8_DYNAMIC' is not supported"));
  CHECK(contains(error(codes()), "without their scale (expected x.weight_scale or x.deq_scale)"));
  CHECK(contains(error(codes().add<float>("x.weight_scale", Dtype::kF32, {3}, {1, 1, 1})),
                 "x.weight_scale: its shape [3] is not a grid"));
  CHECK(contains(error(codes().add<float>("x.weight_scale", Dtype::kF32, {0, 4}, {})), "x.weight_scale: its shape"));
  CHECK(contains(error(codes().add<int32_t>("x.weight_scale", Dtype::kI32, {2}, {1, 1})), "x.weight_scale: type I32"));
  CHECK(contains(error(codes()
                           .add<float>("x.weight_scale", Dtype::kF32, {2, 1}, {1, 1})
                           .add<float>("x.weight_offset", Dtype::kF32, {2, 2}, {1, 1, 1, 1})),
                 "x.weight_offset: not the shape of weight_scale"));
  CHECK(contains(error(static_layer().add<double>("x.deq_scale", Dtype::kF64, {2}, {1, 1})),
                 "x.deq_scale: wrong type (expected I64, U64, F32, found F64)"));
  CHECK(contains(error(static_layer().add<float>("x.deq_scale", Dtype::kF32, {1}, {1})),
                 "x.deq_scale: wrong shape (expected [2], found [1])"));
  CHECK(contains(error(codes("W8A8").add<float>("x.deq_scale", Dtype::kF32, {2}, {1, 1})), "x.input_scale is missing"));
  CHECK(contains(error(codes("W8A8")
                           .add<float>("x.deq_scale", Dtype::kF32, {2}, {1, 1})
                           .add<float>("x.input_scale", Dtype::kF32, {1}, {0})),
                 "holds inf"));
  CHECK(contains(error(static_layer().add<float>("x.deq_scale", Dtype::kF32, {2}, {1, NAN})), "holds nan"));
  SmallCheckpoint transposed;
  transposed.add("x.weight", Dtype::kI8, {4, 2}, kCodes);
  transposed.add<float>("x.weight_offset", Dtype::kF32, {2}, {0, 0});
  CHECK(contains(error(transposed), "x.weight: wrong shape (expected [2, 4], found [4, 2])"));

  SmallCheckpoint two = codes();
  two.text(kDescription, "{}").text("quant_model_description_w8a8.json", "{}");
  CHECK(contains(error(two), "without their scale"));  // the name without a suffix counts
  SmallCheckpoint several;
  several.text("quant_model_description_w8a8.json", "{}").text("quant_model_description_w8a16.json", "{}");
  CHECK(contains(error(several), "several description files"));
}

TEST_CASE("rotations while running are refused by name") {
  SmallCheckpoint small = codes();
  small.add<float>("x.weight_scale", Dtype::kF32, {2}, {1, 1});
  small.add<float>("x.heads_rotation", Dtype::kF32, {1, 1}, {1});
  const Checkpoint checkpoint = small.make();
  Binder binder(checkpoint);
  static_cast<void>(binder.matrix("x", 2, 4));
  CHECK(contains(error_of([&] { binder.finish(kAll, {}, "test"); }), "QuaRot"));
  // A file of rotations beside the weights, unless the tensors are trusted.
  for (const char* rotations : {R"({"rotation_map":{"global_rotation":"quarot.safetensors"}})", "{}"}) {
    SmallCheckpoint beside = codes();
    beside.text("quant_model_description.json", fmt::format(R"({{"optional":{{"quarot":{}}}}})", rotations));
    const Checkpoint described = beside.make();
    const bool refused = std::string_view(rotations) != "{}";
    CHECK(contains(error_of([&] { Binder{described}; }), "optional.quarot: rotations while running") == refused);
    CHECK(error_of([&] { Binder(described, true); }) == "");
  }
}

}  // namespace
}  // namespace qgen::test
