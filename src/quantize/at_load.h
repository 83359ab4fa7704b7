// Weights that are quantized while a model is loaded.
#pragma once

#include <string_view>

#include "model/plan.h"
#include "quantize/recipe.h"

namespace qgen::quantize {

// Makes the unquantized matrices of a plan's linear layers and experts weights of this format, whose codes are
// made when the model is loaded; from headers alone. Tables, routers and what reasons_to_keep() names stay as they
// are, and so does the output head unless `head`: where it is the embedding too, that stays beside it. A model Error
// where nothing could be quantized.
void quantize_at_load(Plan& plan, Format format, bool head);

}  // namespace qgen::quantize
