// The engine for GPUs: walks a plan as a few kernels a layer, for up to 16 tokens as one recorded walk.
#pragma once

#include <memory>

#include "engine/engine.h"
#include "kernels/backend.h"

namespace qgen::QGEN_BACKEND {

std::unique_ptr<Engine> make_engine(const Plan& plan, const EngineOptions& options);
MemoryUse account_engine(const Plan& plan, const EngineOptions& options);

}  // namespace qgen::QGEN_BACKEND
