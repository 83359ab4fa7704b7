// The methods of str, dict, list and tuple that do not change their object, and what the str filters share
// with them. Offsets are bytes inside and code points where a template sees them.
#include <algorithm>
#include <cstring>

#include <fmt/format.h>

#include "jinja/builtins.h"
#include "jinja/format.h"
#include "jinja/operators.h"
#include "jinja/print.h"
#include "jinja/unicode.h"

namespace qgen::jinja {

size_t find_text(std::string_view text, std::string_view part, size_t from) {
  if (from > text.size()) return std::string_view::npos;
  if (part.empty()) return from;
  if (from == text.size()) return std::string_view::npos;
  const void* found = part.size() == 1 ? std::memchr(text.data() + from, part[0], text.size() - from)
                                       : memmem(text.data() + from, text.size() - from, part.data(), part.size());
  return found == nullptr ? std::string_view::npos : static_cast<size_t>(static_cast<const char*>(found) - text.data());
}

namespace {

using In = Interpreter&;
using V = const Value&;
using A = Arguments&;

size_t next_code_point(std::string_view text, size_t at) {
  return at >= text.size() ? at + 1 : at + code_point_at(text, at).bytes;
}

// The last occurrence that ends by `end`; npos if absent. Reversed texts keep memmem's linear time.
class ReverseFinder {
 public:
  ReverseFinder(std::string_view text, std::string_view part)
      : text_(text.rbegin(), text.rend()), part_(part.rbegin(), part.rend()) {}
  size_t find(size_t end) const {
    const size_t found = find_text(text_, part_, text_.size() - end);
    return found == std::string_view::npos ? found : text_.size() - found - part_.size();
  }

 private:
  std::string text_, part_;
};

// str.split and rsplit with a separator, or with null at runs of whitespace.
std::vector<Value> split(Heap& heap, V self, const Value* separator, int64_t limit, bool from_right) {
  const std::string_view text = self.view();
  heap.charge_characters(text.size());
  std::vector<std::pair<size_t, size_t>> parts;
  uint64_t left = limit < 0 ? UINT64_MAX : static_cast<uint64_t>(limit);
  const auto add = [&](size_t begin, size_t end) {
    heap.check_items(parts.size());
    heap.charge(64);
    parts.emplace_back(begin, end);
  };
  if (separator == nullptr || separator->is_none()) {
    const auto space_at = [&](size_t at) { return is_space(code_point_at(text, at).value); };
    const auto space_before = [&](size_t at) { return is_space(code_point_before(text, at).value); };
    if (!from_right) {
      for (size_t at = 0;;) {
        while (at < text.size() && space_at(at)) at = next_code_point(text, at);
        if (at >= text.size()) break;
        if (left-- == 0) {
          add(at, text.size());
          break;
        }
        size_t end = at;
        while (end < text.size() && !space_at(end)) end = next_code_point(text, end);
        add(at, end);
        at = end;
      }
    } else {
      for (size_t end = text.size();;) {
        while (end > 0 && space_before(end)) end -= code_point_before(text, end).bytes;
        if (end == 0) break;
        if (left-- == 0) {
          add(0, end);
          break;
        }
        size_t begin = end;
        while (begin > 0 && !space_before(begin)) begin -= code_point_before(text, begin).bytes;
        add(begin, end);
        end = begin;
      }
    }
  } else {
    const std::string_view by = as_text(*separator, "the separator").view();
    if (by.empty()) raise("empty separator");
    if (!from_right) {
      size_t at = 0;
      for (; left > 0; --left) {
        const size_t found = find_text(text, by, at);
        if (found == std::string_view::npos) break;
        add(at, found);
        at = found + by.size();
      }
      add(at, text.size());
    } else {
      const ReverseFinder finder(text, by);
      size_t end = text.size();
      for (; left > 0; --left) {
        const size_t found = finder.find(end);
        if (found == std::string_view::npos) break;
        add(found + by.size(), end);
        end = found;
      }
      add(0, end);
    }
  }
  if (from_right) std::reverse(parts.begin(), parts.end());
  std::vector<Value> out;
  out.reserve(parts.size());
  for (const auto& [begin, end] : parts) out.push_back(heap.slice(self, begin, end));
  return out;
}

Value split_method(In in, A arguments, V self, bool from_right) {
  const Binder bound(arguments, from_right ? "rsplit" : "split", {"sep", "maxsplit"});
  return in.heap().list(split(in.heap(), self, bound.get(0), bound.integer(1, -1), from_right));
}

template <Side side>
Value strip_method(In in, V self, A arguments) {
  const Binder bound(arguments, "strip", {"chars"});
  return strip(in.heap(), self, bound.get(0), side);
}

// The part of the text that optional start and end arguments choose.
struct Window {
  size_t begin, end;
  bool valid;
};
Window window(V self, const Binder& bound) {
  const Text& text = self.text();
  const auto length = static_cast<int64_t>(text.length());
  const auto bound_at = [&](size_t index, int64_t fallback) {
    if (bound.get(index) == nullptr || bound.at(index).is_none()) return fallback;
    int64_t at = as_index(bound.at(index));
    if (at < 0) at = at < -length ? 0 : at + length;
    return at;
  };
  const int64_t start = bound_at(1, 0), stop = std::min(bound_at(2, length), length);
  if (start > stop) return {0, 0, false};
  return {text.offset_of(static_cast<size_t>(start)), text.offset_of(static_cast<size_t>(stop)), true};
}

template <bool at_end>
Value affix_method(In in, V self, A arguments) {
  const Binder bound(arguments, at_end ? "endswith" : "startswith", {"prefix", "start", "end"}, 1);
  if (!self.text().ascii()) in.heap().charge(self.text().size() / 4);
  const Window part = window(self, bound);
  const std::string_view text = self.view().substr(part.begin, part.end - part.begin);
  const auto matches = [&](const Value& affix) {
    in.heap().charge_key(affix);
    if (!affix.is_string()) {
      require_defined(affix);
      raise(fmt::format("{} first arg must be str or a tuple of str, not {}", at_end ? "endswith" : "startswith",
                        type_name(affix)));
    }
    return part.valid && (at_end ? text.ends_with(affix.view()) : text.starts_with(affix.view()));
  };
  if (bound.at(0).is(Kind::kSequence) && bound.at(0).sequence().kind == SequenceKind::kTuple) {
    for (const Value& affix : bound.at(0).sequence().items) {
      in.heap().step();
      if (matches(affix)) return Value::of(true);
    }
    return Value::of(false);
  }
  return Value::of(matches(bound.at(0)));
}

enum class Find { kFirst, kLast, kFirstOrRaise, kLastOrRaise };

template <Find how>
Value find_method_of(In in, V self, A arguments) {
  const Binder bound(arguments, "find", {"sub", "start", "end"}, 1);
  const std::string_view part = as_text(bound.at(0), "find() argument").view();
  in.heap().charge(self.text().size() / 4);
  const Window chosen = window(self, bound);
  size_t found = std::string_view::npos;
  if (chosen.valid) {
    const std::string_view text = self.view().substr(chosen.begin, chosen.end - chosen.begin);
    found = how == Find::kFirst || how == Find::kFirstOrRaise ? find_text(text, part, 0)
                                                              : ReverseFinder(text, part).find(text.size());
  }
  if (found != std::string_view::npos) {
    return Value::of(static_cast<int64_t>(self.text().index_of(chosen.begin + found)));
  }
  if (how == Find::kFirstOrRaise || how == Find::kLastOrRaise) raise("substring not found");
  return Value::of(int64_t{-1});
}

Value count_method(In in, V self, A arguments) {
  const Binder bound(arguments, "count", {"sub", "start", "end"}, 1);
  const std::string_view part = as_text(bound.at(0), "count() argument").view();
  in.heap().charge(self.text().size() / 4);
  const Window chosen = window(self, bound);
  if (!chosen.valid) return Value::of(int64_t{0});
  const std::string_view text = self.view().substr(chosen.begin, chosen.end - chosen.begin);
  if (part.empty()) return Value::of(static_cast<int64_t>(count_code_points(text) + 1));
  int64_t count = 0;
  for (size_t at = find_text(text, part, 0); at != std::string_view::npos;
       at = find_text(text, part, at + part.size())) {
    ++count;
  }
  return Value::of(count);
}

Value replace_method(In in, V self, A arguments) {
  const Binder bound(arguments, "replace", {"old", "new", "count"}, 2);
  return replace_all(in.heap(), self, as_text(bound.at(0), "replace() argument 1"),
                     as_text(bound.at(1), "replace() argument 2"), bound.integer(2, -1));
}

Value join_method(In in, V self, A arguments) {
  const Binder bound(arguments, "join", {"iterable"}, 1);
  if (bound.at(0).is_none() || bound.at(0).is_number()) raise("can only join an iterable");
  return join_values(in.heap(), self, iterate(in.heap(), bound.at(0)), true);
}

Value format_method(In in, V self, A arguments) { return brace_format(in, self, arguments); }

Value splitlines_method(In in, V self, A arguments) {
  const Binder bound(arguments, "splitlines", {"keepends"});
  return in.heap().list(split_lines(in.heap(), self, bound.flag(0, false)));
}

template <bool prefix>
Value remove_method(In in, V self, A arguments) {
  const Binder bound(arguments, prefix ? "removeprefix" : "removesuffix", {"affix"}, 1);
  const std::string_view affix = as_text(bound.at(0), "removeprefix() argument").view(), text = self.view();
  in.heap().charge(affix.size() / 4);
  if (prefix && text.starts_with(affix)) return in.heap().slice(self, affix.size(), text.size());
  if (!prefix && text.ends_with(affix)) return in.heap().slice(self, 0, text.size() - affix.size());
  return self;
}

// Where a separator splits the text into three.
template <bool last>
Value partition_method(In in, V self, A arguments) {
  const Binder bound(arguments, "partition", {"sep"}, 1);
  const std::string_view by = as_text(bound.at(0), "partition() argument").view(), text = self.view();
  if (by.empty()) raise("empty separator");
  Heap& heap = in.heap();
  heap.charge_characters(text.size());
  const size_t found = last ? ReverseFinder(text, by).find(text.size()) : find_text(text, by, 0);
  const Value empty = heap.text(std::string(), false);
  if (found == std::string_view::npos) {
    return last ? heap.tuple({empty, empty, self}) : heap.tuple({self, empty, empty});
  }
  return heap.tuple({heap.slice(self, 0, found), heap.slice(self, found, found + by.size()),
                     heap.slice(self, found + by.size(), text.size())});
}

template <Side side>
Value justify_method(In in, V self, A arguments) {
  const Binder bound(arguments, "ljust", {"width", "fillchar"}, 1);
  const int64_t width = bound.integer(0, 0);
  if (side == Side::kBoth) return center_text(in.heap(), self, width, bound.get(1));
  const Value fill = bound.get(1) ? as_text(bound.at(1), "the fill character") : in.heap().text(" ", false);
  if (fill.text().length() != 1) raise("The fill character must be exactly one character long");
  const auto length = static_cast<int64_t>(self.text().length());
  if (width <= length) return self;
  const Value padding = arithmetic(in.heap(), Op::kMultiply, fill, Value::of(width - length));
  return side == Side::kLeft ? arithmetic(in.heap(), Op::kAdd, self, padding)
                             : arithmetic(in.heap(), Op::kAdd, padding, self);
}

Value zfill_method(In in, V self, A arguments) {
  const Binder bound(arguments, "zfill", {"width"}, 1);
  const int64_t missing = bound.integer(0, 0) - static_cast<int64_t>(self.text().length());
  if (missing <= 0) return self;
  in.heap().check_text(static_cast<size_t>(missing));
  const size_t head = self.view().starts_with('-') || self.view().starts_with('+') ? 1 : 0;
  TextBuilder out;
  out.append(self.text(), 0, head);
  out.append(std::string(static_cast<size_t>(missing), '0'), false);
  out.append(self.text(), head, self.text().size());
  return in.heap().text(std::move(out));
}

template <bool (*predicate)(uint32_t)>
Value all_method(In in, V self, A arguments) {
  const Binder bound(arguments, "is…", {});
  const std::string_view text = self.view();
  in.heap().charge_characters(text.size());
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    if (!predicate(c.value)) return Value::of(false);
    at += c.bytes;
  }
  return Value::of(!text.empty());
}

bool is_alnum(uint32_t c) { return is_alpha(c) || is_digit(c) || is_numeric(c); }

template <bool upper>
Value cased_method(In in, V self, A arguments) {
  const Binder bound(arguments, upper ? "isupper" : "islower", {});
  in.heap().charge_characters(self.text().size());
  return Value::of(all_cased(self.view(), upper));
}

// The names are literals, which live for ever.
template <char first>
Value case_method(In in, V self, A arguments) {
  constexpr std::string_view name = first == 'u'   ? "upper"
                                    : first == 'l' ? "lower"
                                    : first == 't' ? "title"
                                    : first == 's' ? "swapcase"
                                                   : "capitalize";
  const Binder bound(arguments, name, {});
  return change_case(in.heap(), self, name);
}

constexpr NamedBuiltin kTextMethods[] = {
    {"strip", strip_method<Side::kBoth>},
    {"lstrip", strip_method<Side::kLeft>},
    {"rstrip", strip_method<Side::kRight>},
    {"split", [](In in, V self, A a) { return split_method(in, a, self, false); }},
    {"rsplit", [](In in, V self, A a) { return split_method(in, a, self, true); }},
    {"splitlines", splitlines_method},
    {"startswith", affix_method<false>},
    {"endswith", affix_method<true>},
    {"upper", case_method<'u'>},
    {"lower", case_method<'l'>},
    {"casefold", case_method<'l'>},
    {"title", case_method<'t'>},
    {"capitalize", case_method<'c'>},
    {"swapcase", case_method<'s'>},
    {"replace", replace_method},
    {"find", find_method_of<Find::kFirst>},
    {"rfind", find_method_of<Find::kLast>},
    {"index", find_method_of<Find::kFirstOrRaise>},
    {"rindex", find_method_of<Find::kLastOrRaise>},
    {"count", count_method},
    {"join", join_method},
    {"format", format_method},
    {"removeprefix", remove_method<true>},
    {"removesuffix", remove_method<false>},
    {"partition", partition_method<false>},
    {"rpartition", partition_method<true>},
    {"center", justify_method<Side::kBoth>},
    {"ljust", justify_method<Side::kLeft>},
    {"rjust", justify_method<Side::kRight>},
    {"zfill", zfill_method},
    {"isdigit", all_method<is_digit>},
    {"isdecimal", all_method<is_decimal>},
    {"isnumeric", all_method<is_numeric>},
    {"isalpha", all_method<is_alpha>},
    {"isalnum", all_method<is_alnum>},
    {"isspace", all_method<is_space>},
    {"isupper", cased_method<true>},
    {"islower", cased_method<false>},
};

Value view_of(In in, V self, A arguments, SequenceKind kind) {
  const Binder bound(arguments, "keys", {});
  std::vector<Value> items;
  const auto& entries = self.dict().entries;
  in.heap().step(entries.size() / 4);
  items.reserve(entries.size());
  for (const auto& [key, value] : entries) {
    items.push_back(kind == SequenceKind::kKeys     ? key
                    : kind == SequenceKind::kValues ? value
                                                    : in.heap().tuple({key, value}));
  }
  Value view = in.heap().list(std::move(items), kind);
  view.sequence().user = self.dict().user;
  return view;
}

Value get_method(In in, V self, A arguments) {
  const Binder bound(arguments, "get", {"key", "default"}, 1);
  in.heap().charge_key(bound.at(0));
  if (const Value* found = self.dict().find(bound.at(0))) return *found;
  return bound.get(1) ? bound.at(1) : Value::none();
}

constexpr NamedBuiltin kDictMethods[] = {
    {"items", [](In in, V self, A a) { return view_of(in, self, a, SequenceKind::kItems); }},
    {"keys", [](In in, V self, A a) { return view_of(in, self, a, SequenceKind::kKeys); }},
    {"values", [](In in, V self, A a) { return view_of(in, self, a, SequenceKind::kValues); }},
    {"get", get_method},
    {"copy",
     [](In, V self, A a) {
       const Binder bound(a, "copy", {});
       return self;
     }},
};

Value list_index(In in, V self, A arguments) {
  const Binder bound(arguments, "index", {"value"}, 1);
  const auto& items = self.sequence().items;
  for (size_t i = 0; i < items.size(); ++i) {
    if (equal(in.heap(), items[i], bound.at(0))) return Value::of(static_cast<int64_t>(i));
  }
  TextBuilder shown;
  append_repr(in.heap(), shown, bound.at(0));
  raise(fmt::format("{} is not in list", shown.view()));
}

Value list_count(In in, V self, A arguments) {
  const Binder bound(arguments, "count", {"value"}, 1);
  int64_t count = 0;
  for (const Value& item : self.sequence().items) count += equal(in.heap(), item, bound.at(0)) ? 1 : 0;
  return Value::of(count);
}

constexpr NamedBuiltin kListMethods[] = {
    {"index", list_index},
    {"count", list_count},
};

Value loop_cycle(In, V self, A arguments) {
  if (arguments.positional.empty()) raise("no items for cycling given");
  return arguments.positional[self.loop().index % arguments.positional.size()];
}

Value loop_changed(In in, V self, A arguments) {
  Loop& loop = self.loop();
  bool changed = !loop.has_changed_value || loop.changed_value.size() != arguments.positional.size();
  for (size_t i = 0; !changed && i < arguments.positional.size(); ++i) {
    changed = !equal(in.heap(), loop.changed_value[i], arguments.positional[i]);
  }
  loop.has_changed_value = true;
  if (changed) loop.changed_value = arguments.positional;
  return Value::of(changed);
}

constexpr NamedBuiltin kLoopMethods[] = {
    {"cycle", loop_cycle},
    {"changed", loop_changed},
};

constexpr NamedBuiltin kCyclerMethods[] = {
    {"next",
     [](In, V self, A) {
       Cycler& cycler = self.cycler();
       const size_t position = cycler.position;
       cycler.position = (position + 1) % cycler.items.size();
       return cycler.items[position];
     }},
    {"reset",
     [](In, V self, A) {
       self.cycler().position = 0;
       return Value::none();
     }},
};

std::span<const NamedBuiltin> methods_of(V object) {
  switch (object.kind) {
    case Kind::kString: return kTextMethods;
    case Kind::kDict: return kDictMethods;
    case Kind::kSequence:
      switch (object.sequence().kind) {
        case SequenceKind::kList:
        case SequenceKind::kTuple:
        case SequenceKind::kGroup:
        case SequenceKind::kRange: return kListMethods;
        default: return {};
      }
    case Kind::kLoop: return kLoopMethods;
    case Kind::kCycler: return kCyclerMethods;
    default: return {};
  }
}

}  // namespace

Builtin find_method(const Value& object, std::string_view name) {
  for (const NamedBuiltin& method : methods_of(object)) {
    if (method.name == name) return method.builtin;
  }
  return nullptr;
}

bool is_forbidden_method(const Value& object, std::string_view name) {
  static constexpr std::string_view kDict[] = {"clear", "pop", "popitem", "setdefault", "update", "fromkeys"};
  static constexpr std::string_view kList[] = {"append", "clear",  "pop",    "reverse", "insert",
                                               "sort",   "extend", "remove", "copy"};
  static constexpr std::string_view kText[] = {"encode",       "format_map",  "translate", "maketrans", "expandtabs",
                                               "isidentifier", "isprintable", "istitle",   "isascii"};
  const auto has = [&](std::span<const std::string_view> names) {
    return std::find(names.begin(), names.end(), name) != names.end();
  };
  if (object.is(Kind::kDict)) return has(kDict);
  if (object.is(Kind::kSequence)) return object.sequence().kind == SequenceKind::kList && has(kList);
  return object.is_string() && has(kText);
}

Value strip(Heap& heap, const Value& value, const Value* chars, Side side) {
  const std::string_view text = value.view();
  heap.charge(text.size() / 16);
  std::string_view set;
  const bool spaces = chars == nullptr || chars->is_none();
  if (!spaces) set = as_text(*chars, "strip arg").view();
  const auto stripped = [&](size_t at, size_t bytes) {
    if (spaces) return is_space(code_point_at(text, at).value);
    heap.charge(set.size() / 8);
    return find_text(set, text.substr(at, bytes), 0) != std::string_view::npos;
  };
  size_t begin = 0, end = text.size();
  while (side != Side::kRight && begin < end) {
    const size_t bytes = code_point_at(text, begin).bytes;
    if (!stripped(begin, bytes)) break;
    begin += bytes;
  }
  while (side != Side::kLeft && begin < end) {
    const size_t bytes = code_point_before(text, end).bytes;
    if (!stripped(end - bytes, bytes)) break;
    end -= bytes;
  }
  return heap.slice(value, begin, end);
}

namespace {

// Case-ignorable characters (marks, apostrophes), skipped between a sigma and the letter that decides its form.
bool is_case_ignorable(uint32_t c) {
  return c == '\'' || c == '.' || c == ':' || c == '^' || c == '`' || c == 0xA8 || c == 0xAD || c == 0xAF ||
         c == 0xB4 || c == 0xB7 || c == 0xB8 || c == 0x2019 || (c >= 0x300 && c <= 0x36F);
}

// A capital sigma at [at, after) ends its word: a letter before it, none behind it.
bool is_final_sigma(std::string_view text, size_t at, size_t after) {
  constexpr int kLook = 32;  // how many marks to look over
  bool before = false, behind = false;
  for (int i = 0; at > 0 && i < kLook; ++i) {
    const CodePoint c = code_point_before(text, at);
    before = is_cased(c.value);
    if (!is_case_ignorable(c.value)) break;
    at -= c.bytes;
  }
  for (int i = 0; after < text.size() && i < kLook; ++i) {
    const CodePoint c = code_point_at(text, after);
    behind = is_cased(c.value);
    if (!is_case_ignorable(c.value)) break;
    after += c.bytes;
  }
  return before && !behind;
}

}  // namespace

Value change_case(Heap& heap, const Value& value, std::string_view method) {
  const Text& text = value.text();
  heap.charge_characters(text.size());
  TextBuilder out;
  bool previous_cased = false;
  rewrite(out, text, [&](std::string& run, size_t at) {
    const CodePoint c = code_point_at(text.view(), at);
    Case to = Case::kLower;
    if (method == "upper") {
      to = Case::kUpper;
    } else if (method == "title") {
      to = previous_cased ? Case::kLower : Case::kTitle;
    } else if (method == "capitalize") {
      to = at == 0 ? Case::kTitle : Case::kLower;
    } else if (method == "swapcase") {
      to = is_upper(c.value) ? Case::kLower : Case::kUpper;
    }
    previous_cased = is_cased(c.value);
    constexpr uint32_t kCapitalSigma = 0x3A3;
    if (c.value == kCapitalSigma && to == Case::kLower && is_final_sigma(text.view(), at, at + c.bytes)) {
      run += "\u03C2";
    } else {
      append_cased(run, c.value, to);
    }
    return c.bytes;
  });
  return heap.text(std::move(out));
}

Value replace_all(Heap& heap, const Value& value, const Value& from, const Value& to, int64_t count) {
  const Text& text = value.text();
  heap.charge_characters(text.size());
  uint64_t left = count < 0 ? UINT64_MAX : static_cast<uint64_t>(count);
  TextBuilder out;
  size_t at = 0;
  const auto put = [&] {
    out.append(to.text());
    heap.check_text(out.size());
    --left;
  };
  if (from.text().empty()) {  // between all characters
    while (left > 0 && at < text.size()) {
      put();
      const size_t next = next_code_point(text.view(), at);
      out.append(text, at, next);
      at = next;
    }
    if (left > 0 && at >= text.size()) put();
  } else {
    while (left > 0) {
      const size_t found = find_text(text.view(), from.view(), at);
      if (found == std::string_view::npos) break;
      out.append(text, at, found);
      put();
      at = found + from.text().size();
    }
  }
  if (at == 0 && out.size() == 0 && !text.empty()) return value;
  if (at < text.size()) out.append(text, at, text.size());
  return heap.text(std::move(out));
}

Value join_values(Heap& heap, const Value& separator, const std::vector<Value>& items, bool strings_only) {
  TextBuilder out;
  for (size_t i = 0; i < items.size(); ++i) {
    heap.step();
    if (i != 0) out.append(separator.text());
    if (strings_only && !items[i].is_string()) {
      raise(fmt::format("sequence item {}: expected str instance, {} found", i, type_name(items[i])));
    }
    append_str(heap, out, items[i]);
    heap.check_text(out.size());
  }
  return heap.text(std::move(out));
}

Value center_text(Heap& heap, const Value& value, int64_t width, const Value* fill_argument) {
  const Value fill = fill_argument ? as_text(*fill_argument, "the fill character") : heap.text(" ", false);
  if (fill.text().length() != 1) raise("The fill character must be exactly one character long");
  const int64_t missing = width - static_cast<int64_t>(value.text().length());
  if (missing <= 0) return value;
  // Python's rounding: the left gets the odd one if the width is odd too.
  const int64_t left = missing / 2 + (missing & width & 1);
  const Value before = arithmetic(heap, Op::kMultiply, fill, Value::of(left));
  const Value after = arithmetic(heap, Op::kMultiply, fill, Value::of(missing - left));
  return arithmetic(heap, Op::kAdd, arithmetic(heap, Op::kAdd, before, value), after);
}

std::vector<Value> split_lines(Heap& heap, const Value& value, bool keep_ends) {
  const std::string_view text = value.view();
  heap.charge_characters(text.size());
  std::vector<Value> lines;
  size_t begin = 0;
  for (size_t at = 0; at < text.size();) {
    const CodePoint c = code_point_at(text, at);
    size_t next = at + c.bytes;
    if (is_line_break(c.value)) {
      if (c.value == '\r' && next < text.size() && text[next] == '\n') ++next;
      heap.check_items(lines.size());
      heap.charge(64);
      lines.push_back(heap.slice(value, begin, keep_ends ? next : at));
      begin = next;
    }
    at = next;
  }
  if (begin < text.size()) lines.push_back(heap.slice(value, begin, text.size()));
  return lines;
}

}  // namespace qgen::jinja
