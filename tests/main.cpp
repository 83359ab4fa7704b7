// Runs the test cases, then lists by name what they have skipped.
#define DOCTEST_CONFIG_IMPLEMENT
#include "tests/skipped.h"

#include <cstdlib>
#include <fstream>
#include <iostream>
#include <set>
#include <string>

#include <doctest/doctest.h>

namespace qgen::test {
namespace {

std::set<std::string> g_skipped;

}  // namespace

void skipped(std::string_view what, std::string_view reason) {
  const auto* const test_case = doctest::getContextOptions()->currentTest;
  g_skipped.insert(std::string(test_case->m_name) + ": " + std::string(what) + " (" + std::string(reason) + ")");
}

}  // namespace qgen::test

int main(int argc, char** argv) {
  doctest::Context context(argc, argv);
  const int code = context.run();
  const char* const file = std::getenv("QGEN_SKIPPED");
  std::ofstream list(file != nullptr ? file : "");
  for (const std::string& line : qgen::test::g_skipped) {
    std::cout << "skipped: " << line << '\n';
    list << line << '\n';
  }
  return code;
}
