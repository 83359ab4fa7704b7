// The backend for GPUs: runs a plan's steps as a few kernels each, and batches of few tokens as CUDA graphs.
#pragma once

#include <memory>

#include "engine/backend.h"
#include "kernels/namespace.h"

namespace qgen::QGEN_BACKEND {

// A device Error where the plan has something that kernels have not.
std::unique_ptr<Backend> make_backend(const Plan& plan, const EngineOptions& options);
MemoryUse account_backend(const Plan& plan, const EngineOptions& options);

}  // namespace qgen::QGEN_BACKEND
