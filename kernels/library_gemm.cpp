#include "kernels/library_gemm.h"

#include <array>
#include <cstdint>
#include <cstdlib>
#include <map>
#include <string_view>
#include <tuple>

#include <cublasLt.h>
#include <dlfcn.h>
#include <fmt/format.h>

#include "base/error.h"
#include "kernels/stream.h"

namespace qgen::cuda {
namespace {

// QGEN_CUBLASLT names the library's file, or says off.
void* open_library() {
  const auto open = [](const char* name) { return dlopen(name, RTLD_NOW | RTLD_LOCAL); };
  if (const char* const said = std::getenv("QGEN_CUBLASLT"); said != nullptr && *said != 0) {
    if (std::string_view(said) == "off") return nullptr;
    if (void* const file = open(said)) return file;
    fail(ErrorKind::kUsage, fmt::format("QGEN_CUBLASLT: {}", dlerror()), "the file of cuBLASLt, or off");
  }
  for (const char* name : {"libcublasLt.so.13", "/usr/local/cuda/lib64/libcublasLt.so.13", "libcublasLt.so.12",
                           "/usr/local/cuda/lib64/libcublasLt.so.12"}) {
    if (void* const file = open(name)) return file;
  }
  return nullptr;
}

// The functions of cuBLASLt that qgen calls, looked up at run time.
struct Library {
  void* file = open_library();
  bool found = file != nullptr;  // with all of it

  decltype(&cublasLtCreate) create = find("cublasLtCreate");
  decltype(&cublasLtDestroy) destroy = find("cublasLtDestroy");
  decltype(&cublasLtGetVersion) version = find("cublasLtGetVersion");
  decltype(&cublasLtMatmul) matmul = find("cublasLtMatmul");
  decltype(&cublasLtMatmulAlgoGetHeuristic) heuristic = find("cublasLtMatmulAlgoGetHeuristic");
  decltype(&cublasLtMatmulDescCreate) desc_create = find("cublasLtMatmulDescCreate");
  decltype(&cublasLtMatmulDescDestroy) desc_destroy = find("cublasLtMatmulDescDestroy");
  decltype(&cublasLtMatmulDescSetAttribute) desc_set = find("cublasLtMatmulDescSetAttribute");
  decltype(&cublasLtMatrixLayoutCreate) layout_create = find("cublasLtMatrixLayoutCreate");
  decltype(&cublasLtMatrixLayoutDestroy) layout_destroy = find("cublasLtMatrixLayoutDestroy");
  decltype(&cublasLtMatmulPreferenceCreate) preference_create = find("cublasLtMatmulPreferenceCreate");
  decltype(&cublasLtMatmulPreferenceDestroy) preference_destroy = find("cublasLtMatmulPreferenceDestroy");
  decltype(&cublasLtMatmulPreferenceSetAttribute) preference_set = find("cublasLtMatmulPreferenceSetAttribute");

 private:
  // Becomes a pointer to a function of any type.
  struct Symbol {
    void* address;
    template <typename Function>
    operator Function*() const {
      return reinterpret_cast<Function*>(address);
    }
  };
  Symbol find(const char* name) {
    void* const address = file == nullptr ? nullptr : dlsym(file, name);
    found = found && address != nullptr;
    return {address};
  }
};

// Stays loaded: it is the same for every engine.
const Library& cublas() {
  static const Library loaded;
  return loaded;
}

constexpr size_t kMostProducts = 512;          // that are kept ready: prompts are of many lengths
constexpr int64_t kWorkspaceBytes = 32 << 20;  // what NVIDIA recommends for compute capability 9.0

struct Types {
  cudaDataType_t input, output, scale;
  cublasComputeType_t compute;
};
Types types_of(LibraryGemmKind kind) {
  switch (kind) {
    case LibraryGemmKind::kF16: return {CUDA_R_16F, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F};
    case LibraryGemmKind::kBf16: return {CUDA_R_16BF, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F};
    case LibraryGemmKind::kI8: return {CUDA_R_8I, CUDA_R_32I, CUDA_R_32I, CUBLAS_COMPUTE_32I};
    default: return {CUDA_R_8F_E4M3, CUDA_R_32F, CUDA_R_32F, CUBLAS_COMPUTE_32F};
  }
}

// Bytes that an address is a multiple of, up to those of a load: a product in pieces is one kind of product.
uint32_t alignment(const void* address) {
  const auto bits = reinterpret_cast<uintptr_t>(address) | 16;
  return uint32_t(bits & -bits);
}

// One kind of product, ready to be started.
struct Product {
  cublasLtMatmulDesc_t desc = nullptr;
  cublasLtMatrixLayout_t w = nullptr, x = nullptr, y = nullptr;
  cublasLtMatmulPreference_t preference = nullptr;
  cublasLtMatmulAlgo_t algorithm{};
  bool usable = false;

  Product() = default;
  Product(const Product&) = delete;
  ~Product() {
    if (preference != nullptr) cublas().preference_destroy(preference);
    for (cublasLtMatrixLayout_t layout : {w, x, y}) {
      if (layout != nullptr) cublas().layout_destroy(layout);
    }
    if (desc != nullptr) cublas().desc_destroy(desc);
  }
  template <typename T>
  bool set(cublasLtMatmulDescAttributes_t attribute, const T& value) {
    return cublas().desc_set(desc, attribute, &value, sizeof(value)) == CUBLAS_STATUS_SUCCESS;
  }
  template <typename T>
  bool prefer(cublasLtMatmulPreferenceAttributes_t attribute, const T& value) {
    return cublas().preference_set(preference, attribute, &value, sizeof(value)) == CUBLAS_STATUS_SUCCESS;
  }
};

}  // namespace

bool gemm_library_found() { return cublas().found; }

const LibraryGemmLimits& library_gemm_limits() {
  // Writing the weights of 8B out as 16-bit floats takes about as long as 300 tokens take here longer than there: an
  // estimate from peaks (bench/README.md). 32 MiB of weights stay in the second-level cache of larger GPUs until they
  // are read again; fewer rows would leave processors idle.
  static const LibraryGemmLimits limits{384, 32 << 20, 2048, kWorkspaceBytes};
  return limits;
}

struct LibraryGemm::State {
  using Key = std::tuple<LibraryGemmKind, int, int, int, int64_t, int64_t, int64_t, std::array<uint32_t, 3>>;

  State(Device& d, void* memory) : device(d), workspace(memory) {}

  Device& device;
  void* workspace;
  cublasLtHandle_t handle = nullptr;
  bool started = false;
  std::map<Key, Product> products;

  ~State() {
    products.clear();
    if (handle != nullptr) cublas().destroy(handle);
  }

  bool start() {
    if (!started && cublas().found && cublas().create(&handle) != CUBLAS_STATUS_SUCCESS) handle = nullptr;
    started = true;
    return handle != nullptr;
  }

  static bool prepare(Product& p, const LibraryGemmArgs& args, cublasLtHandle_t handle) {
    const Library& l = cublas();
    const auto good = [](cublasStatus_t status) { return status == CUBLAS_STATUS_SUCCESS; };
    const Types types = types_of(args.kind);
    // The library's matrices are stored by columns: W is its first one transposed, each token a column of the others.
    if (!good(l.desc_create(&p.desc, types.compute, types.scale)) || !p.set(CUBLASLT_MATMUL_DESC_TRANSA, CUBLAS_OP_T) ||
        !p.set(CUBLASLT_MATMUL_DESC_TRANSB, CUBLAS_OP_N) ||
        !good(l.layout_create(&p.w, types.input, uint64_t(args.cols), uint64_t(args.rows), args.w_stride)) ||
        !good(l.layout_create(&p.x, types.input, uint64_t(args.cols), uint64_t(args.tokens), args.x_stride)) ||
        !good(l.layout_create(&p.y, types.output, uint64_t(args.rows), uint64_t(args.tokens), args.y_stride)) ||
        !good(l.preference_create(&p.preference)))
      return false;
    if (args.kind == LibraryGemmKind::kE4M3Blocks) {
      const int32_t blocks = CUBLASLT_MATMUL_MATRIX_SCALE_BLK128x128_32F,
                    groups = CUBLASLT_MATMUL_MATRIX_SCALE_VEC128_32F;
      if (!p.set(CUBLASLT_MATMUL_DESC_A_SCALE_MODE, blocks) || !p.set(CUBLASLT_MATMUL_DESC_B_SCALE_MODE, groups) ||
          !p.set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, args.w_scale) ||
          !p.set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, args.x_scale))
        return false;
    }
    if (!p.prefer(CUBLASLT_MATMUL_PREF_MAX_WORKSPACE_BYTES, uint64_t(kWorkspaceBytes)) ||
        !p.prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_A_BYTES, alignment(args.w)) ||
        !p.prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_B_BYTES, alignment(args.x)) ||
        !p.prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_C_BYTES, alignment(args.y)) ||
        !p.prefer(CUBLASLT_MATMUL_PREF_MIN_ALIGNMENT_D_BYTES, alignment(args.y)))
      return false;
    cublasLtMatmulHeuristicResult_t result{};
    int found = 0;
    if (!good(l.heuristic(handle, p.desc, p.w, p.x, p.y, p.y, p.preference, 1, &result, &found)) || found == 0 ||
        !good(result.state))
      return false;
    p.algorithm = result.algo;
    return true;
  }

  Product& product(const LibraryGemmArgs& args) {
    if (products.size() >= kMostProducts) products.clear();
    const auto [found, fresh] = products.try_emplace(Key{args.kind,
                                                         args.rows,
                                                         args.cols,
                                                         args.tokens,
                                                         args.w_stride,
                                                         args.x_stride,
                                                         args.y_stride,
                                                         {alignment(args.w), alignment(args.x), alignment(args.y)}});
    if (fresh) found->second.usable = prepare(found->second, args, handle);
    return found->second;
  }
};

LibraryGemm::LibraryGemm(Device& device, void* workspace) : state_(std::make_unique<State>(device, workspace)) {}
LibraryGemm::~LibraryGemm() = default;

std::string LibraryGemm::library() const {
  if (state_->handle == nullptr) return "";
  const size_t version = cublas().version();
  return fmt::format("cuBLASLt {}.{}", version / 10000, version / 100 % 100);
}

bool LibraryGemm::can(const LibraryGemmArgs& args) { return state_->start() && state_->product(args).usable; }

bool LibraryGemm::multiply(const LibraryGemmArgs& args) {
  Product& p = state_->product(args);
  if (!p.usable) return false;
  const int32_t whole[2] = {1, 0};
  const float parts[2] = {args.factor, args.add ? 1.0f : 0.0f};
  const bool integers = args.kind == LibraryGemmKind::kI8;
  const void* const alpha = integers ? static_cast<const void*>(&whole[0]) : &parts[0];
  const void* const beta = integers ? static_cast<const void*>(&whole[1]) : &parts[1];
  if (args.kind == LibraryGemmKind::kE4M3Blocks) {
    p.usable = p.set(CUBLASLT_MATMUL_DESC_A_SCALE_POINTER, args.w_scale) &&
               p.set(CUBLASLT_MATMUL_DESC_B_SCALE_POINTER, args.x_scale);
  }
  // It may lack memory for its kernels, which come in when they are first wanted.
  p.usable = p.usable && cublas().matmul(state_->handle, p.desc, alpha, args.w, p.w, args.x, p.x, beta, args.y, p.y,
                                         args.y, p.y, &p.algorithm, state_->workspace, kWorkspaceBytes,
                                         state_->device.stream().handle) == CUBLAS_STATUS_SUCCESS;
  return p.usable;
}

}  // namespace qgen::cuda
