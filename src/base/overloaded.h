// A visitor from functions: std::visit(Overloaded{[](const A&) {...}, [](const auto&) {...}}, variant).
#pragma once

namespace qgen {

template <typename... Functions>
struct Overloaded : Functions... {
  using Functions::operator()...;
};
template <typename... Functions>
Overloaded(Functions...) -> Overloaded<Functions...>;

}  // namespace qgen
