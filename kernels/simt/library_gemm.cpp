// kernels/library_gemm.h for the executor: each product as its definition has it.
#include "kernels/library_gemm.h"

#include <cstdlib>
#include <string_view>

#include "base/numbers.h"
#include "kernels/simt/launch.h"

namespace qgen::simt {
namespace {

int products_left = -1;

template <typename T>
T at(const void* rows, int64_t index) {
  return static_cast<const T*>(rows)[index];
}

// Of row n of W and token t of x.
double product(const LibraryGemmArgs& a, int64_t n, int64_t t) {
  const int64_t w = n * a.w_stride, x = t * a.x_stride;
  double sum = 0;
  for (int64_t k = 0; k < a.cols; ++k) {
    switch (a.kind) {
      case LibraryGemmKind::kF16:
        sum += double(f16_to_float(at<uint16_t>(a.w, w + k))) * f16_to_float(at<uint16_t>(a.x, x + k));
        break;
      case LibraryGemmKind::kBf16:
        sum += double(bf16_to_float(at<uint16_t>(a.w, w + k))) * bf16_to_float(at<uint16_t>(a.x, x + k));
        break;
      case LibraryGemmKind::kI8: sum += at<int8_t>(a.w, w + k) * at<int8_t>(a.x, x + k); break;
      case LibraryGemmKind::kE4M3:
      case LibraryGemmKind::kE4M3Blocks: {
        const double scale = a.kind == LibraryGemmKind::kE4M3
                                 ? 1.0
                                 : double(at<float>(a.w_scale, n / 128 * a.w_scale_stride + k / 128)) *
                                       at<float>(a.x_scale, k / 128 * a.tokens + t);
        sum += scale * e4m3_to_float(at<uint8_t>(a.w, w + k)) * e4m3_to_float(at<uint8_t>(a.x, x + k));
      }
    }
  }
  return sum;
}

}  // namespace

void fail_library_after(int products) { products_left = products; }

// Small, so that small models are done in several pieces.
const LibraryGemmLimits& library_gemm_limits() {
  static const LibraryGemmLimits limits{24, 16 << 10, 32, 256};
  return limits;
}

// Like the real one it can be turned off.
bool gemm_library_found() {
  const char* const said = std::getenv("QGEN_CUBLASLT");
  return said == nullptr || std::string_view(said) != "off";
}

struct LibraryGemm::State {
  Stream& stream;
};
LibraryGemm::LibraryGemm(Device& device, void*) : state_(new State{device.stream()}) {}
LibraryGemm::~LibraryGemm() = default;
std::string LibraryGemm::library() const { return gemm_library_found() ? "loops" : ""; }
bool LibraryGemm::can(const LibraryGemmArgs& args) {
  if (!gemm_library_found()) return false;
  if (args.kind == LibraryGemmKind::kF16 || args.kind == LibraryGemmKind::kBf16) return true;
  return args.tokens % kLibraryGemmTokens == 0 && args.rows % (args.kind == LibraryGemmKind::kI8 ? 4 : 16) == 0 &&
         args.cols % 16 == 0;
}
bool LibraryGemm::multiply(const LibraryGemmArgs& args) {
  if (products_left == 0) return false;
  products_left -= products_left > 0;
  state_->stream.work.perform([=] {
    check_launch({.early = false});  // the library's kernels wait for all before them
    for (int64_t t = 0; t < args.tokens; ++t) {
      check_result(static_cast<float*>(args.y) + t * args.y_stride, size_t(args.rows) * sizeof(float));
      for (int64_t n = 0; n < args.rows; ++n) {
        const double y = product(args, n, t) * args.factor;
        if (args.kind == LibraryGemmKind::kI8) {
          static_cast<int32_t*>(args.y)[t * args.y_stride + n] = int32_t(y);
        } else {
          float& to = static_cast<float*>(args.y)[t * args.y_stride + n];
          to = float(args.add ? to + y : y);
        }
      }
    }
  });
  return true;
}

}  // namespace qgen::simt
