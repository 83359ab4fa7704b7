// What a step computes with, as numbers, by which two plans of one model are compared.
#pragma once

#include <vector>

#include "model/plan.h"

namespace qgen {

// All fields of a step but rows, states, weights and the values of vectors: of vectors whether they are there, of
// rotations the frequencies for the plan's context. Which elements are rotated as a pair, and which value heads have a
// key head, are no part of it: layouts differ in the order of rows (GGUF).
std::vector<double> step_numbers(const Plan& plan, const Step& step);

}  // namespace qgen
