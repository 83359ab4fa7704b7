#include "jinja/parser.h"

#include <algorithm>
#include <initializer_list>
#include <optional>

#include <fmt/format.h>

#include "jinja/token_cursor.h"

namespace qgen::jinja {
namespace {

constexpr int kMaxNesting = 200;   // of blocks and expressions while parsing
constexpr int kMaxHeight = 500;    // of one expression: a + b + c + … is a tall tree without nesting
constexpr size_t kMaxNamed = 255;  // keyword arguments of a call, parameters of a macro

class Parser : private TokenCursor {
 public:
  explicit Parser(std::string_view source) : TokenCursor(source) {}

  Syntax run() {
    syntax_.body = statements({});
    return std::move(syntax_);
  }

 private:
  class Nested {
   public:
    explicit Nested(Parser& parser) : parser_(parser) {
      if (++parser_.nesting_ > kMaxNesting) {
        parser_.fail(fmt::format("nested too deeply (more than {} levels)", kMaxNesting));
      }
    }
    ~Nested() { --parser_.nesting_; }
    Nested(const Nested&) = delete;
    Nested& operator=(const Nested&) = delete;

   private:
    Parser& parser_;
  };

  // Expressions.

  static ExprPtr make(ExprKind kind, uint32_t offset) {
    auto expr = std::make_unique<Expr>();
    expr->kind = kind;
    expr->offset = offset;
    return expr;
  }

  void raise_height(Expr& parent, const ExprPtr& child) const {
    if (child == nullptr) return;
    parent.height = std::max(parent.height, child->height + 1);
    if (parent.height > kMaxHeight) {
      fail_at(parent.offset, fmt::format("the expression is too long (more than {} steps)", kMaxHeight));
    }
  }

  void add_child(Expr& parent, ExprPtr child) const {
    raise_height(parent, child);
    parent.children.push_back(std::move(child));
  }

  ExprPtr binary(ExprKind kind, Op op, uint32_t offset, ExprPtr left, ExprPtr right) const {
    ExprPtr node = make(kind, offset);
    node->op = op;
    add_child(*node, std::move(left));
    add_child(*node, std::move(right));
    return node;
  }

  ExprPtr expression(bool with_conditional = true) {
    const Nested nested(*this);
    if (!with_conditional) return disjunction();
    const uint32_t offset = current().offset;
    ExprPtr value = disjunction();
    while (skip_word("if")) {
      ExprPtr test = disjunction();
      ExprPtr otherwise;
      if (skip_word("else")) otherwise = expression();
      ExprPtr node = make(ExprKind::kConditional, offset);
      add_child(*node, std::move(test));
      add_child(*node, std::move(value));
      if (otherwise != nullptr) add_child(*node, std::move(otherwise));
      value = std::move(node);
    }
    return value;
  }

  ExprPtr disjunction() {
    ExprPtr left = conjunction();
    while (is_word("or")) {
      const uint32_t offset = next().offset;
      left = binary(ExprKind::kOr, Op::kAdd, offset, std::move(left), conjunction());
    }
    return left;
  }

  ExprPtr conjunction() {
    ExprPtr left = negation();
    while (is_word("and")) {
      const uint32_t offset = next().offset;
      left = binary(ExprKind::kAnd, Op::kAdd, offset, std::move(left), negation());
    }
    return left;
  }

  ExprPtr negation() {
    if (!is_word("not")) return comparison();
    const Nested nested(*this);
    ExprPtr node = make(ExprKind::kUnary, next().offset);
    node->op = Op::kNot;
    add_child(*node, negation());
    return node;
  }

  std::optional<Op> comparison_operator() {
    static constexpr std::pair<std::string_view, Op> kTable[] = {{"==", Op::kEqual},     {"!=", Op::kNotEqual},
                                                                 {"<", Op::kLess},       {">", Op::kGreater},
                                                                 {"<=", Op::kLessEqual}, {">=", Op::kGreaterEqual}};
    for (const auto& [text, op] : kTable) {
      if (skip_op(text)) return op;
    }
    if (skip_word("in")) return Op::kIn;
    if (is_word("not") && look().kind == TokenKind::kName && look().text == "in") {
      next();
      next();
      return Op::kNotIn;
    }
    return {};
  }

  ExprPtr comparison() {
    const uint32_t offset = current().offset;
    ExprPtr first = sum();
    ExprPtr node;
    while (const auto op = comparison_operator()) {
      if (node == nullptr) {
        node = make(ExprKind::kCompare, offset);
        add_child(*node, std::move(first));
      }
      node->ops.push_back(*op);
      add_child(*node, sum());
    }
    return node != nullptr ? std::move(node) : std::move(first);
  }

  ExprPtr sum() {
    ExprPtr left = concatenation();
    while (is_op("+") || is_op("-")) {
      const Token& token = next();
      const Op op = token.text == "+" ? Op::kAdd : Op::kSubtract;
      const uint32_t offset = token.offset;
      left = binary(ExprKind::kBinary, op, offset, std::move(left), concatenation());
    }
    return left;
  }

  ExprPtr concatenation() {
    const uint32_t offset = current().offset;
    ExprPtr first = product();
    if (!is_op("~")) return first;
    ExprPtr node = make(ExprKind::kConcat, offset);
    add_child(*node, std::move(first));
    while (skip_op("~")) add_child(*node, product());
    return node;
  }

  ExprPtr product() {
    ExprPtr left = power();
    while (is_op("*") || is_op("/") || is_op("//") || is_op("%")) {
      const Token& token = next();
      const Op op = token.text == "*"    ? Op::kMultiply
                    : token.text == "/"  ? Op::kDivide
                    : token.text == "//" ? Op::kFloorDivide
                                         : Op::kModulo;
      const uint32_t offset = token.offset;
      left = binary(ExprKind::kBinary, op, offset, std::move(left), power());
    }
    return left;
  }

  ExprPtr power() {
    ExprPtr left = unary(true);
    while (is_op("**")) {
      const uint32_t offset = next().offset;
      left = binary(ExprKind::kBinary, Op::kPower, offset, std::move(left), unary(true));
    }
    return left;
  }

  ExprPtr unary(bool with_filter) {
    ExprPtr node;
    if (is_op("-") || is_op("+")) {
      const Nested nested(*this);
      const Token& token = next();
      node = make(ExprKind::kUnary, token.offset);
      node->op = token.text == "-" ? Op::kNegative : Op::kPositive;
      add_child(*node, unary(false));
    } else {
      node = primary();
    }
    node = postfix(std::move(node));
    return with_filter ? filters(std::move(node)) : std::move(node);
  }

  void read_name(const std::string& name) {
    const auto id = static_cast<size_t>(syntax_.names.intern(name));
    if (syntax_.read.size() <= id) syntax_.read.resize(id + 1);
    syntax_.read[id] = true;
    uses_caller_ |= name == "caller";
    uses_varargs_ |= name == "varargs";
    uses_kwargs_ |= name == "kwargs";
  }

  ExprPtr primary() {
    const Nested nested(*this);
    const Token& token = current();
    ExprPtr node = make(ExprKind::kConstant, token.offset);
    switch (token.kind) {
      case TokenKind::kName: {
        next();
        const std::string& name = token.text;
        if (name == "true" || name == "True" || name == "false" || name == "False") {
          node->constant = Value::of(name == "true" || name == "True");
        } else if (name != "none" && name != "None") {
          node->kind = ExprKind::kName;
          node->name = syntax_.names.intern(name);
          read_name(name);
        }
        return node;
      }
      case TokenKind::kString: {
        std::string text;
        while (current().kind == TokenKind::kString) text += next().text;
        node->constant = Value::literal(text);
        return node;
      }
      case TokenKind::kInteger:
        node->constant = Value::of(token.integer);
        next();
        return node;
      case TokenKind::kFloat:
        node->constant = Value::of(token.number);
        next();
        return node;
      default: break;
    }
    if (skip_op("(")) {
      node = tuple(true, {}, true);
      expect_op(")");
      return node;
    }
    if (is_op("[")) return list();
    if (is_op("{")) return dict();
    fail(fmt::format("unexpected '{}'", describe(current())));
  }

  // One expression, or several with commas as a tuple. `end_word` ends it too.
  ExprPtr tuple(bool with_conditional, std::string_view end_word, bool explicit_parentheses) {
    const uint32_t offset = current().offset;
    std::vector<ExprPtr> items;
    bool is_tuple = false;
    while (true) {
      if (current().kind == TokenKind::kVariableEnd || current().kind == TokenKind::kBlockEnd || is_op(")") ||
          (!end_word.empty() && is_word(end_word))) {
        break;
      }
      items.push_back(expression(with_conditional));
      if (!is_op(",")) break;
      is_tuple = true;
      next();
    }
    if (!is_tuple) {
      if (!items.empty()) return std::move(items[0]);
      if (!explicit_parentheses) fail(fmt::format("Expected an expression, got '{}'", describe(current())));
    }
    ExprPtr node = make(ExprKind::kTuple, offset);
    for (ExprPtr& item : items) add_child(*node, std::move(item));
    return node;
  }

  ExprPtr list() {
    ExprPtr node = make(ExprKind::kList, next().offset);
    while (!is_op("]")) {
      if (!node->children.empty()) expect_op(",");
      if (is_op("]")) break;
      add_child(*node, expression());
    }
    expect_op("]");
    return node;
  }

  ExprPtr dict() {
    ExprPtr node = make(ExprKind::kDict, next().offset);
    while (!is_op("}")) {
      if (!node->children.empty()) expect_op(",");
      if (is_op("}")) break;
      add_child(*node, expression());
      expect_op(":");
      add_child(*node, expression());
    }
    expect_op("}");
    return node;
  }

  ExprPtr postfix(ExprPtr node) {
    while (true) {
      if (is_op(".")) {
        const uint32_t offset = next().offset;
        const Token& name = next();
        if (name.kind == TokenKind::kName) {
          ExprPtr attribute = make(ExprKind::kAttribute, name.offset);
          attribute->text = name.text;
          add_child(*attribute, std::move(node));
          node = std::move(attribute);
        } else if (name.kind == TokenKind::kInteger) {
          ExprPtr index = make(ExprKind::kConstant, name.offset);
          index->constant = Value::of(name.integer);
          node = binary(ExprKind::kItem, Op::kAdd, offset, std::move(node), std::move(index));
        } else {
          fail_at(name.offset, "expected name or number");
        }
      } else if (is_op("[")) {
        node = subscript(std::move(node));
      } else if (is_op("(")) {
        node = call(std::move(node));
      } else {
        return node;
      }
    }
  }

  ExprPtr subscript(ExprPtr object) {
    const uint32_t offset = next().offset;
    std::vector<ExprPtr> parts;
    while (!is_op("]")) {
      if (!parts.empty()) expect_op(",");
      parts.push_back(subscribed());
    }
    expect_op("]");
    ExprPtr index;
    if (parts.size() == 1) {
      index = std::move(parts[0]);
    } else {
      index = make(ExprKind::kTuple, offset);
      for (ExprPtr& part : parts) {
        if (part->kind == ExprKind::kSlice) fail_at(part->offset, "a slice within a tuple of indices is not supported");
        add_child(*index, std::move(part));
      }
    }
    return binary(ExprKind::kItem, Op::kAdd, offset, std::move(object), std::move(index));
  }

  ExprPtr subscribed() {
    const uint32_t offset = current().offset;
    ExprPtr start, stop, step;
    if (!is_op(":")) {
      start = expression();
      if (!is_op(":")) return start;
    }
    next();
    if (!is_op(":") && !is_op("]") && !is_op(",")) stop = expression();
    if (skip_op(":") && !is_op("]") && !is_op(",")) step = expression();
    ExprPtr node = make(ExprKind::kSlice, offset);
    add_child(*node, std::move(start));
    add_child(*node, std::move(stop));
    add_child(*node, std::move(step));
    return node;
  }

  void call_arguments(Expr& node) {
    const uint32_t offset = current().offset;
    expect_op("(");
    CallArguments& arguments = node.arguments;
    const auto ensure = [&](bool ok) {
      if (!ok) fail_at(offset, "invalid syntax for function call expression");
    };
    bool first = true;
    while (!is_op(")")) {
      if (!first) {
        expect_op(",");
        if (is_op(")")) break;
      }
      first = false;
      ExprPtr value;
      if (skip_op("*")) {
        ensure(arguments.star == nullptr && arguments.star_star == nullptr);
        value = expression();
        raise_height(node, value);
        arguments.star = std::move(value);
      } else if (skip_op("**")) {
        ensure(arguments.star_star == nullptr);
        value = expression();
        raise_height(node, value);
        arguments.star_star = std::move(value);
      } else if (current().kind == TokenKind::kName && look().kind == TokenKind::kOperator && look().text == "=") {
        ensure(arguments.star_star == nullptr);
        std::string name = next().text;
        next();
        value = expression();
        raise_height(node, value);
        for (const auto& other : arguments.named) {
          if (other.first == name) fail_at(offset, fmt::format("keyword argument repeated: {}", name));
        }
        arguments.named.emplace_back(std::move(name), std::move(value));
        if (arguments.named.size() > kMaxNamed) fail(fmt::format("more than {} keyword arguments", kMaxNamed));
      } else {
        ensure(arguments.star == nullptr && arguments.star_star == nullptr && arguments.named.empty());
        value = expression();
        raise_height(node, value);
        arguments.positional.push_back(std::move(value));
      }
    }
    expect_op(")");
  }

  ExprPtr call(ExprPtr callee) {
    ExprPtr node = make(ExprKind::kCall, current().offset);
    add_child(*node, std::move(callee));
    call_arguments(*node);
    return node;
  }

  std::string dotted_name() {
    std::string name = expect_name();
    while (skip_op(".")) name += "." + expect_name();
    return name;
  }

  ExprPtr filters(ExprPtr node) {
    while (true) {
      if (is_op("|")) {
        node = filter(std::move(node), false);
      } else if (is_word("is")) {
        node = test(std::move(node));
      } else if (is_op("(")) {
        node = call(std::move(node));
      } else {
        return node;
      }
    }
  }

  ExprPtr filter(ExprPtr node, bool start_inline) {
    while (start_inline || is_op("|")) {
      if (!start_inline) next();
      start_inline = false;
      ExprPtr outer = make(ExprKind::kFilter, current().offset);
      outer->text = dotted_name();
      add_child(*outer, std::move(node));
      if (is_op("(")) call_arguments(*outer);
      node = std::move(outer);
    }
    return node;
  }

  ExprPtr test(ExprPtr subject) {
    ExprPtr node = make(ExprKind::kTest, next().offset);
    const bool negated = skip_word("not");
    node->text = dotted_name();
    add_child(*node, std::move(subject));
    const bool starts_argument = current().kind == TokenKind::kName || current().kind == TokenKind::kString ||
                                 current().kind == TokenKind::kInteger || current().kind == TokenKind::kFloat ||
                                 is_op("[") || is_op("{");
    if (is_op("(")) {
      call_arguments(*node);
    } else if (starts_argument && !is_word("else") && !is_word("or") && !is_word("and")) {
      if (is_word("is")) fail("You cannot chain multiple tests with is");
      ExprPtr argument = postfix(primary());
      raise_height(*node, argument);
      node->arguments.positional.push_back(std::move(argument));
    }
    if (!negated) return node;
    ExprPtr outer = make(ExprKind::kUnary, node->offset);
    outer->op = Op::kNot;
    add_child(*outer, std::move(node));
    return outer;
  }

  // Targets of assignments.

  Target target_part(bool with_namespace) {
    const Nested nested(*this);
    Target target;
    target.offset = current().offset;
    if (skip_op("(")) {
      target = target_tuple("", with_namespace, true);
      expect_op(")");
      return target;
    }
    if (current().kind != TokenKind::kName) fail(fmt::format("can't assign to '{}'", describe(current())));
    const std::string name = next().text;
    static constexpr std::string_view kReserved[] = {"true", "false", "none", "True", "False", "None"};
    if (std::find(std::begin(kReserved), std::end(kReserved), name) != std::end(kReserved)) {
      fail_at(target.offset, "can't assign to 'const'");
    }
    target.name = syntax_.names.intern(name);
    if (with_namespace && skip_op(".")) {
      target.attribute = expect_name();
    } else if (name == "loop" && loops_ > 0) {
      fail_at(target.offset, "Can't assign to special loop variable in for-loop");
    }
    return target;
  }

  Target target_tuple(std::string_view end_word, bool with_namespace, bool in_parentheses) {
    Target tuple;
    tuple.offset = current().offset;
    tuple.is_tuple = true;
    bool commas = false;
    while (true) {
      if (current().kind == TokenKind::kBlockEnd || current().kind == TokenKind::kVariableEnd || is_op(")") ||
          (!end_word.empty() && is_word(end_word))) {
        break;
      }
      tuple.elements.push_back(target_part(with_namespace));
      if (!is_op(",")) break;
      commas = true;
      next();
    }
    if (commas || (in_parentheses && tuple.elements.empty())) return tuple;
    if (tuple.elements.empty()) fail(fmt::format("Expected an expression, got '{}'", describe(current())));
    Target only = std::move(tuple.elements[0]);
    return only;
  }

  // Statements.

  static StmtPtr make_stmt(StmtKind kind, uint32_t offset) {
    auto stmt = std::make_unique<Stmt>();
    stmt->kind = kind;
    stmt->offset = offset;
    return stmt;
  }

  using Words = std::initializer_list<std::string_view>;

  bool at_any(Words words) const {
    return current().kind == TokenKind::kName && std::find(words.begin(), words.end(), current().text) != words.end();
  }

  // Up to a tag that opens with one of `ends`, which is left as the current token; up to the end of the
  // template if there are none.
  Body statements(Words ends) {
    const Nested nested(*this);
    Body body;
    while (true) {
      const Token& token = current();
      if (token.kind == TokenKind::kEnd) {
        if (ends.size() == 0) return body;
        fail(fmt::format("Unexpected end of template. Jinja was looking for the following tags: '{}'.",
                         fmt::join(ends, "' or '")));
      }
      next();
      if (token.kind == TokenKind::kData) {
        StmtPtr text = make_stmt(StmtKind::kText, token.offset);
        text->text = std::make_shared<const Text>(token.text, false);
        body.push_back(std::move(text));
      } else if (token.kind == TokenKind::kVariableBegin) {
        StmtPtr output = make_stmt(StmtKind::kOutput, token.offset);
        output->expr = tuple(true, {}, false);
        expect(TokenKind::kVariableEnd, "end of print statement");
        body.push_back(std::move(output));
      } else {
        if (at_any(ends)) return body;
        statement(body);
        expect_block_end();
      }
    }
  }

  // The body of a block after its opening tag; a colon may end that.
  Body block(Words ends) {
    skip_op(":");
    expect_block_end();
    return statements(ends);
  }

  Body closed_block(std::string_view end) {
    Body body = block({end});
    next();
    return body;
  }

  void statement(Body& body) {
    const Token& token = current();
    if (token.kind != TokenKind::kName) fail("tag name expected");
    const std::string& tag = token.text;
    const uint32_t offset = token.offset;
    if (tag == "for") return body.push_back(for_loop());
    if (tag == "if") return body.push_back(if_statement());
    if (tag == "set") return body.push_back(set());
    if (tag == "macro") return body.push_back(macro());
    if (tag == "call") return body.push_back(call_block());
    if (tag == "filter") return body.push_back(filter_block());
    if (tag == "with") return body.push_back(with());
    if (tag == "generation") {
      next();
      StmtPtr scope = make_stmt(StmtKind::kScope, offset);
      scope->body = without_loops([&] { return closed_block("endgeneration"); });
      return body.push_back(std::move(scope));
    }
    if (tag == "print") {
      next();
      bool first = true;
      while (current().kind != TokenKind::kBlockEnd) {
        if (!first) expect_op(",");
        first = false;
        StmtPtr output = make_stmt(StmtKind::kOutput, offset);
        output->expr = expression();
        body.push_back(std::move(output));
      }
      return;
    }
    if (tag == "break" || tag == "continue") {
      if (loops_ == 0) fail(fmt::format("'{}' outside loop", tag));
      next();
      return body.push_back(make_stmt(tag == "break" ? StmtKind::kBreak : StmtKind::kContinue, offset));
    }
    static constexpr std::string_view kUnsupported[] = {"include", "import", "from", "extends", "block", "autoescape"};
    if (std::find(std::begin(kUnsupported), std::end(kUnsupported), tag) != std::end(kUnsupported)) {
      fail(fmt::format("the tag '{}' is not supported in chat templates", tag));
    }
    fail(fmt::format("Encountered unknown tag '{}'.", tag));
  }

  template <class Parse>
  Body without_loops(Parse parse) {
    const int loops = std::exchange(loops_, 0);
    Body body = parse();
    loops_ = loops;
    return body;
  }

  StmtPtr for_loop() {
    StmtPtr loop = make_stmt(StmtKind::kFor, next().offset);
    ++loops_;
    loop->target = target_tuple("in", false, false);
    --loops_;
    expect_word("in");
    loop->expr = tuple(false, "recursive", false);
    if (skip_word("if")) loop->test = expression();
    loop->recursive = skip_word("recursive");
    ++loops_;
    loop->body = block({"endfor", "else"});
    --loops_;
    if (next().text == "else") loop->otherwise = closed_block("endfor");
    return loop;
  }

  StmtPtr if_statement() {
    StmtPtr node = make_stmt(StmtKind::kIf, next().offset);
    while (true) {
      ExprPtr test = tuple(false, {}, false);
      Body body = block({"elif", "else", "endif"});
      node->branches.emplace_back(std::move(test), std::move(body));
      const std::string& word = next().text;
      if (word == "elif") continue;
      if (word == "else") node->otherwise = closed_block("endif");
      return node;
    }
  }

  StmtPtr set() {
    StmtPtr node = make_stmt(StmtKind::kSet, next().offset);
    node->target = target_tuple({}, true, false);
    if (skip_op("=")) {
      node->expr = tuple(true, {}, false);
      return node;
    }
    node->kind = StmtKind::kSetBlock;
    if (is_op("|")) node->expr = filter(nullptr, false);
    node->body = without_loops([&] { return closed_block("endset"); });
    return node;
  }

  void signature(Stmt& macro) {
    expect_op("(");
    bool first = true, fallbacks = false;
    while (!is_op(")")) {
      if (!first) expect_op(",");
      first = false;
      Parameter parameter;
      const std::string name = expect_name();
      parameter.name = syntax_.names.intern(name);
      for (const Parameter& other : macro.parameters) {
        if (other.name == parameter.name) fail(fmt::format("duplicate argument '{}' in a macro", name));
      }
      if (skip_op("=")) {
        parameter.fallback = expression();
        fallbacks = true;
      } else if (fallbacks) {
        fail("non-default argument follows default argument");
      }
      macro.parameters.push_back(std::move(parameter));
      if (macro.parameters.size() > kMaxNamed) fail(fmt::format("more than {} parameters", kMaxNamed));
    }
    expect_op(")");
  }

  // The body of a macro, which also shows whether it reads caller, varargs or kwargs.
  void macro_body(Stmt& macro, std::string_view end) {
    const bool caller = std::exchange(uses_caller_, false);
    const bool varargs = std::exchange(uses_varargs_, false);
    const bool kwargs = std::exchange(uses_kwargs_, false);
    macro.body = without_loops([&] { return closed_block(end); });
    const auto is_parameter = [&](const std::string& name) {
      return std::any_of(macro.parameters.begin(), macro.parameters.end(),
                         [&](const Parameter& p) { return syntax_.names[p.name] == name; });
    };
    macro.uses_caller = uses_caller_ && !is_parameter("caller");
    macro.uses_varargs = uses_varargs_ && !is_parameter("varargs");
    macro.uses_kwargs = uses_kwargs_ && !is_parameter("kwargs");
    uses_caller_ |= caller;
    uses_varargs_ |= varargs;
    uses_kwargs_ |= kwargs;
  }

  StmtPtr macro() {
    StmtPtr node = make_stmt(StmtKind::kMacro, next().offset);
    node->macro_name = expect_name();
    node->name = syntax_.names.intern(node->macro_name);
    signature(*node);
    macro_body(*node, "endmacro");
    return node;
  }

  StmtPtr call_block() {
    StmtPtr node = make_stmt(StmtKind::kCallBlock, next().offset);
    node->callee = make_stmt(StmtKind::kMacro, node->offset);
    node->callee->macro_name = "caller";
    if (is_op("(")) signature(*node->callee);
    node->expr = expression();
    if (node->expr->kind != ExprKind::kCall) fail_at(node->offset, "expected call");
    macro_body(*node->callee, "endcall");
    return node;
  }

  StmtPtr filter_block() {
    StmtPtr node = make_stmt(StmtKind::kFilterBlock, next().offset);
    node->expr = filter(nullptr, true);
    node->body = without_loops([&] { return closed_block("endfilter"); });
    return node;
  }

  StmtPtr with() {
    StmtPtr node = make_stmt(StmtKind::kWith, next().offset);
    while (current().kind != TokenKind::kBlockEnd && !is_op(":")) {
      if (!node->assignments.empty()) expect_op(",");
      Target target = target_tuple({}, false, false);
      expect_op("=");
      node->assignments.emplace_back(std::move(target), expression());
    }
    node->body = closed_block("endwith");
    return node;
  }

  int nesting_ = 0;
  int loops_ = 0;  // that a break could leave
  bool uses_caller_ = false, uses_varargs_ = false, uses_kwargs_ = false;
  Syntax syntax_;
};

}  // namespace

Syntax parse_source(std::string_view source) { return Parser(source).run(); }

}  // namespace qgen::jinja
