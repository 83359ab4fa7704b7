#include "base/edit_distance.h"

#include <doctest/doctest.h>

using qgen::edit_distance;

TEST_CASE("edit distance: insertions, deletions, replacements and exchanges of neighbours") {
  CHECK(edit_distance("", "") == 0);
  CHECK(edit_distance("", "abc") == 3);
  CHECK(edit_distance("abc", "") == 3);
  CHECK(edit_distance("plan", "plan") == 0);
  CHECK(edit_distance("plna", "plan") == 1);
  CHECK(edit_distance("scroe", "score") == 1);
  CHECK(edit_distance("promt", "prompt") == 1);
  CHECK(edit_distance("kitten", "sitting") == 3);
  CHECK(edit_distance("ca", "abc") == 3);
}
