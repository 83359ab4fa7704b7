// From Oniguruma's syntax to PCRE2's, where the two read the same text differently.
#include <array>
#include <cctype>
#include <utility>

#define PCRE2_CODE_UNIT_WIDTH 8
#include <pcre2.h>

#include <fmt/format.h>

#include "base/error.h"
#include "base/json.h"
#include "tokenizer/regex.h"
#include "tokenizer/regex_age.h"

namespace qgen::tokenizer {
namespace {

constexpr int kMaxDepth = 200;
// What Oniguruma's \s and \h match, as members of a class.
constexpr std::string_view kSpaceMembers =
    "\\x{9}-\\x{d} \\x{85}\\x{a0}\\x{1680}\\x{2000}-\\x{200a}\\x{2028}\\x{2029}"
    "\\x{202f}\\x{205f}\\x{3000}";
constexpr std::string_view kHexMembers = "0-9A-Fa-f";

constexpr std::array<std::pair<std::string_view, std::string_view>, 39> kCategories = {{
    {"other", "C"},
    {"control", "Cc"},
    {"format", "Cf"},
    {"unassigned", "Cn"},
    {"privateuse", "Co"},
    {"surrogate", "Cs"},
    {"letter", "L"},
    {"lowercaseletter", "Ll"},
    {"modifierletter", "Lm"},
    {"otherletter", "Lo"},
    {"titlecaseletter", "Lt"},
    {"uppercaseletter", "Lu"},
    {"mark", "M"},
    {"combiningmark", "M"},
    {"spacingmark", "Mc"},
    {"enclosingmark", "Me"},
    {"nonspacingmark", "Mn"},
    {"number", "N"},
    {"decimalnumber", "Nd"},
    {"letternumber", "Nl"},
    {"othernumber", "No"},
    {"punctuation", "P"},
    {"connectorpunctuation", "Pc"},
    {"dashpunctuation", "Pd"},
    {"closepunctuation", "Pe"},
    {"finalpunctuation", "Pf"},
    {"initialpunctuation", "Pi"},
    {"otherpunctuation", "Po"},
    {"openpunctuation", "Ps"},
    {"symbol", "S"},
    {"currencysymbol", "Sc"},
    {"modifiersymbol", "Sk"},
    {"mathsymbol", "Sm"},
    {"othersymbol", "So"},
    {"separator", "Z"},
    {"lineseparator", "Zl"},
    {"paragraphseparator", "Zp"},
    {"spaceseparator", "Zs"},
    {"punct", "P"},
}};

// Members of a class: what PCRE2 knows by this name, and the characters that it does not know yet.
std::string members_of(std::string_view value) {
  std::string out = fmt::format("\\p{{{}}}", value);
  for (const auto& [name, members] : kYoungerCharacters) {
    if (value == name) out += members;
  }
  return out;
}

std::string members_of(std::initializer_list<std::string_view> values) {
  std::string out;
  for (const std::string_view value : values) out += members_of(value);
  return out;
}

// What \w matches within a class.
const std::string& word_members() {
  static const std::string members = members_of({"Alphabetic", "M", "Nd", "Pc"});
  return members;
}

// What \w matches outside of one: numbers like a raised two as well, from Oniguruma's table of the first 256
// characters.
std::string lone_word_members() { return word_members() + "\\x{b2}\\x{b3}\\x{b9}\\x{bc}-\\x{be}"; }

// The sets that both \p{name} and [[:name:]] give; `name` in small letters. Empty for others.
std::string named_members(std::string_view name) {
  if (name == "word") return word_members();
  if (name == "alpha") return members_of("Alphabetic");
  if (name == "upper") return members_of("Uppercase");
  if (name == "lower") return members_of("Lowercase");
  if (name == "digit") return members_of("Nd");
  if (name == "alnum") return members_of({"Alphabetic", "Nd"});
  if (name == "space") return std::string(kSpaceMembers);
  if (name == "blank") return "\\x{9}\\p{Zs}";
  if (name == "cntrl") return "\\p{Cc}";
  if (name == "xdigit") return std::string(kHexMembers);
  if (name == "graph") return members_of({"L", "M", "N", "P", "S", "Cf", "Co"});
  if (name == "print") return named_members("graph") + "\\p{Zs}";
  return {};
}

bool compiles(const std::string& pattern) {
  int error = 0;
  PCRE2_SIZE at = 0;
  pcre2_code* code = pcre2_compile(reinterpret_cast<PCRE2_SPTR>(pattern.data()), pattern.size(), PCRE2_UTF | PCRE2_UCP,
                                   &error, &at, nullptr);
  pcre2_code_free(code);
  return code != nullptr;
}

// A character class as an atom. `members` fit between brackets; `others` are whole atoms.
struct Set {
  std::string members;
  std::vector<std::string> others;

  std::string atom(bool negated) const {
    if (others.empty()) {
      if (members.empty()) return negated ? "(?s:.)" : "(?!)";
      return (negated ? "[^" : "[") + members + "]";
    }
    std::string out = "(?:";
    if (!members.empty()) out += "[" + members + "]|";
    for (size_t i = 0; i < others.size(); ++i) out += (i ? "|" : "") + others[i];
    out += ")";
    return negated ? "(?:(?!" + out + ")(?s:.))" : out;
  }
};

class Translator {
 public:
  explicit Translator(std::string_view pattern) : in_(pattern) {}

  std::string run() {
    while (at_ < in_.size()) step();
    return std::move(out_);
  }

 private:
  [[noreturn]] void reject(std::string_view what) const {
    fail(ErrorKind::kModel, fmt::format("regular expression {}: {} is not supported", quoted_name(in_), what));
  }
  bool looking_at(std::string_view text) const { return in_.substr(at_, text.size()) == text; }

  void atom(std::string_view text) {
    atom_ = out_.size();
    out_ += text;
  }

  void step() {
    const char c = in_[at_];
    if (extended_.back() && (c == '#' || std::isspace(static_cast<unsigned char>(c)))) {
      if (c != '#') {
        out_ += in_[at_++];
      } else {
        while (at_ < in_.size() && in_[at_] != '\n') ++at_;
      }
      return;
    }
    switch (c) {
      case '\\': escape(); return;
      case '[': {
        ++at_;
        const std::string text = set(0);
        atom(text);
        return;
      }
      case '(': open(); return;
      case ')':
        out_ += c;
        ++at_;
        if (!groups_.empty()) {
          atom_ = groups_.back();
          groups_.pop_back();
          extended_.pop_back();
        }
        return;
      case '{': interval(); return;
      default: {
        const size_t length = char_at(in_.substr(at_)).length;
        if (c == '*' || c == '+' || c == '?' || c == '|' || c == '^' || c == '$') {
          out_ += c;
        } else {
          atom(in_.substr(at_, length));
        }
        at_ += length;
      }
    }
  }

  // Oniguruma: (?m) lets the dot match newlines; options last to the end of the group.
  void open() {
    if (groups_.size() > kMaxDepth) reject("nesting this deep");
    const size_t begin = out_.size();
    bool extended = extended_.back();
    if (looking_at("(?#")) {
      while (at_ < in_.size() && in_[at_] != ')') at_ += in_[at_] == '\\' ? 2 : 1;
      at_ = std::min(at_ + 1, in_.size());
      return;
    }
    size_t i = at_ + 2;
    while (looking_at("(?") && i < in_.size() && (std::isalpha(static_cast<unsigned char>(in_[i])) || in_[i] == '-'))
      ++i;
    if (looking_at("(?") && i > at_ + 2 && i < in_.size() && (in_[i] == ':' || in_[i] == ')')) {
      bool on = true;
      out_ += "(?";
      for (size_t j = at_ + 2; j < i; ++j) {
        switch (in_[j]) {
          case '-': on = false, out_ += '-'; break;
          case 'i': out_ += 'i'; break;
          case 'm': out_ += 's'; break;
          case 'x': extended = on, out_ += 'x'; break;
          default: reject(fmt::format("the option '{}'", in_[j]));
        }
      }
      out_ += in_[i];
      at_ = i + 1;
      if (in_[i] == ')') {
        extended_.back() = extended;
        return;
      }
    } else if (looking_at("(?<=") || looking_at("(?<!")) {
      out_ += in_.substr(at_, 4);
      at_ += 4;
    } else if (looking_at("(?:") || looking_at("(?=") || looking_at("(?!") || looking_at("(?>") || looking_at("(?<")) {
      out_ += in_.substr(at_, 3);
      at_ += 3;
      if (out_.back() == '<') {
        while (at_ < in_.size() && in_[at_] != '>' && in_[at_] != ')') out_ += in_[at_++];
      }
    } else if (looking_at("(?") || looking_at("(*")) {
      reject(fmt::format("the group '{}'", in_.substr(at_, 3)));
    } else {
      out_ += in_[at_++];
    }
    groups_.push_back(begin);
    extended_.push_back(extended);
  }

  // {n,m}: Oniguruma reads {,m} as {0,m}, and a plus behind it as one more repetition, not as possessive.
  void interval() {
    size_t i = at_ + 1;
    while (i < in_.size() && (std::isdigit(static_cast<unsigned char>(in_[i])) || in_[i] == ',')) ++i;
    const std::string_view body = in_.substr(at_ + 1, i - at_ - 1);
    if (i >= in_.size() || in_[i] != '}' || body.empty() || body == "," || atom_ == std::string::npos) {
      atom("\\{");
      ++at_;
      return;
    }
    out_ += body[0] == ',' ? fmt::format("{{0{}}}", body) : fmt::format("{{{}}}", body);
    at_ = i + 1;
    if (at_ < in_.size() && in_[at_] == '+') {
      out_.insert(atom_, "(?:");
      out_ += ")";
    }
  }

  // \p{...}, \P{...}, \p{^...} as members of a class; empty with `others` filled where it takes an atom.
  Set property(bool alone) {
    const bool upper = in_[at_ + 1] == 'P';
    const size_t close = in_.find('}', at_);
    if (at_ + 2 >= in_.size() || in_[at_ + 2] != '{' || close == std::string_view::npos) reject("a \\p without braces");
    std::string_view name = in_.substr(at_ + 3, close - at_ - 3);
    at_ = close + 1;
    bool negated = upper;
    if (name.starts_with('^')) {
      negated = !negated;
      name.remove_prefix(1);
    }
    std::string plain;
    for (const char c : name) {
      if (c != ' ' && c != '_' && c != '-') plain += char(std::tolower(static_cast<unsigned char>(c)));
    }
    const auto set_of = [](const std::string& members, bool without) {
      const Set set{members, {}};
      return without ? Set{"", {set.atom(true)}} : set;
    };
    if (plain == "word" && alone) return set_of(lone_word_members(), negated);
    if (const std::string members = named_members(plain); !members.empty()) return set_of(members, negated);
    std::string value(name);
    for (const auto& [from, to] : kCategories) {
      if (plain == from) value = to;
    }
    // A script's name alone means Script_Extensions to PCRE2.
    if (compiles("\\p{sc:" + plain + "}")) value = "sc:" + plain;
    // Characters that are not assigned are those without another category.
    if (value == "Cn") return set_of(members_of({"L", "M", "N", "P", "S", "Z", "Cc", "Cf", "Co", "Cs"}), !negated);
    if (value == "C") return set_of(members_of({"L", "M", "N", "P", "S", "Z"}), !negated);
    const std::string members = members_of(value);
    if (negated && members.ends_with('}') && members.find('}') == members.size() - 1)
      return {fmt::format("\\P{{{}}}", value), {}};
    return set_of(members, negated);
  }

  // An escape that stands for a set of characters, if there is one here, within a class or alone.
  bool escaped_set(bool alone, Set& set) {
    if (at_ + 1 >= in_.size()) return false;
    const char c = in_[at_ + 1];
    std::string members;
    switch (c) {
      case 'p':
      case 'P': set = property(alone); return true;
      case 'w':
      case 'W': members = alone ? lone_word_members() : word_members(); break;
      case 's':
      case 'S': members = kSpaceMembers; break;
      case 'h':
      case 'H': members = kHexMembers; break;
      case 'd':
      case 'D': members = members_of("Nd"); break;
      default: return false;
    }
    at_ += 2;
    if (std::islower(static_cast<unsigned char>(c))) {
      set = {std::move(members), {}};
    } else {
      set = {"", {fmt::format("[^{}]", members)}};
    }
    return true;
  }

  // An escape that stands for one character, for use inside and outside of classes.
  bool escaped_char(std::string& text) {
    if (at_ + 1 >= in_.size()) reject("a backslash at the end");
    const char c = in_[at_ + 1];
    if (c == 'u') {
      const std::string_view digits = in_.substr(at_ + 2, 4);
      if (digits.size() != 4 || digits.find_first_not_of("0123456789abcdefABCDEF") != std::string_view::npos) {
        reject("a \\u without four digits");
      }
      text = fmt::format("\\x{{{}}}", digits);
      at_ += 6;
      return true;
    }
    if (c == 'v') {
      text = "\\x{b}";
      at_ += 2;
      return true;
    }
    if (c == 'x' && at_ + 2 < in_.size() && in_[at_ + 2] == '{') {
      const size_t close = in_.find('}', at_);
      if (close == std::string_view::npos) reject("a \\x without a closing brace");
      text = in_.substr(at_, close + 1 - at_);
      at_ = close + 1;
      return true;
    }
    const size_t length = char_at(in_.substr(at_ + 1)).length;
    if (length > 1 || std::ispunct(static_cast<unsigned char>(c)) || std::isspace(static_cast<unsigned char>(c)) ||
        c == 't' || c == 'n' || c == 'r' || c == 'f' || c == 'a' || c == 'e') {
      text = in_.substr(at_, 1 + length);
      if (length > 1) text.erase(0, 1);
      at_ += 1 + length;
      return true;
    }
    return false;
  }

  void escape() {
    Set set;
    if (escaped_set(true, set)) {
      atom(set.others.empty() && set.members.starts_with("\\") && set.members.find('}') == set.members.size() - 1
               ? set.members
               : set.atom(false));
      return;
    }
    std::string text;
    if (escaped_char(text)) {
      atom(text);
      return;
    }
    const char c = in_[at_ + 1];
    if (std::string_view("bBAzZGRXK123456789xk0").find(c) == std::string_view::npos) reject(fmt::format("'\\{}'", c));
    if (c == 'b' || c == 'B') {
      // PCRE2's own \b knows another \w.
      const std::string word = fmt::format("[{}]", lone_word_members());
      atom(c == 'b' ? fmt::format("(?:(?<={0})(?!{0})|(?<!{0})(?={0}))", word)
                    : fmt::format("(?:(?<={0})(?={0})|(?<!{0})(?!{0}))", word));
    } else {
      atom(in_.substr(at_, 2));
    }
    at_ += 2;
  }

  // A class after its opening bracket, as an atom. Classes nest, and && intersects.
  std::string set(int depth) {
    if (depth > kMaxDepth) reject("nesting this deep");
    bool negated = false;
    if (at_ < in_.size() && in_[at_] == '^') negated = true, ++at_;
    std::vector<Set> parts(1);
    bool first = true;
    for (;; first = false) {
      if (at_ >= in_.size()) reject("a class without a closing bracket");
      Set& part = parts.back();
      const char c = in_[at_];
      if (c == ']' && !first) {
        ++at_;
        break;
      }
      if (looking_at("&&")) {
        parts.emplace_back();
        at_ += 2;
      } else if (looking_at("[:")) {
        const size_t close = in_.find(":]", at_ + 2);
        if (close == std::string_view::npos) reject("a '[:' without ':]'");
        std::string_view name = in_.substr(at_ + 2, close - at_ - 2);
        const bool inverted = name.starts_with('^');
        if (inverted) name.remove_prefix(1);
        at_ = close + 2;
        // Other than \p{punct} this one holds symbols.
        const std::string members = name == "punct" ? members_of({"P", "S"}) : named_members(name);
        if (members.empty()) {
          part.members += fmt::format("[:{}{}:]", inverted ? "^" : "", name);
        } else if (inverted) {
          part.others.push_back(fmt::format("[^{}]", members));
        } else {
          part.members += members;
        }
      } else if (c == '[') {
        ++at_;
        part.others.push_back(set(depth + 1));
      } else if (c == '\\') {
        Set inner;
        std::string text;
        if (escaped_set(false, inner)) {
          part.members += inner.members;
          for (std::string& other : inner.others) part.others.push_back(std::move(other));
        } else if (escaped_char(text)) {
          part.members += text;
        } else if (in_[at_ + 1] == 'b') {
          part.members += "\\x{8}";
          at_ += 2;
        } else if (in_[at_ + 1] == 'x' || std::isdigit(static_cast<unsigned char>(in_[at_ + 1]))) {
          part.members += in_.substr(at_, 2);
          at_ += 2;
        } else {
          reject(fmt::format("'\\{}' in a class", in_[at_ + 1]));
        }
      } else {
        const size_t length = char_at(in_.substr(at_)).length;
        if (c == ']') part.members += '\\';
        part.members += in_.substr(at_, length);
        at_ += length;
      }
    }
    if (parts.size() == 1) return parts[0].atom(negated);
    std::string out = "(?:";
    for (size_t i = 1; i < parts.size(); ++i) out += "(?=" + parts[i].atom(false) + ")";
    out += parts[0].atom(false) + ")";
    return negated ? "(?:(?!" + out + ")(?s:.))" : out;
  }

  std::string_view in_;
  size_t at_ = 0;
  std::string out_;
  size_t atom_ = std::string::npos;  // where in out_ the last atom begins
  std::vector<size_t> groups_;       // where in out_ the open groups begin
  std::vector<bool> extended_{false};
};

}  // namespace

std::string pcre2_pattern(std::string_view pattern) {
  // PCRE2 takes 64 KiB of compiled code; our forms of \b and the like are much longer than Oniguruma's.
  constexpr size_t kMaxPatternBytes = 32 * 1024;
  if (pattern.size() > kMaxPatternBytes)
    fail(ErrorKind::kModel, fmt::format("regular expression {}: too long (expected at most {} bytes, found {})",
                                        quoted_name(pattern), kMaxPatternBytes, pattern.size()));
  return Translator(pattern).run();
}

}  // namespace qgen::tokenizer
