#include "jinja/interpreter.h"

#include <algorithm>

#include <fmt/format.h>

#include "jinja/builtins.h"
#include "jinja/format.h"
#include "jinja/operators.h"
#include "jinja/print.h"

namespace qgen::jinja {

// A scope for as long as a block runs; scopes that no macro closes over are used again.
class Interpreter::ScopeGuard {
 public:
  ScopeGuard(Interpreter& interpreter, Scope* parent)
      : interpreter_(interpreter), scope_(interpreter.new_scope(parent)) {}
  ~ScopeGuard() { interpreter_.release(scope_); }
  ScopeGuard(const ScopeGuard&) = delete;
  ScopeGuard& operator=(const ScopeGuard&) = delete;
  Scope* get() const { return scope_; }
  // An empty scope again, for the next round of a loop.
  void renew() {
    if (scope_->captured) {
      scope_ = interpreter_.new_scope(scope_->parent);
    } else {
      scope_->variables.clear();
    }
  }

 private:
  Interpreter& interpreter_;
  Scope* scope_;
};

namespace {

// How many entries are looked at for the price of a step: templates in earnest have fewer variables.
constexpr size_t kEntriesPerStep = 32;

void capture(Scope* scope) {
  for (; scope != nullptr && !scope->captured; scope = scope->parent) scope->captured = true;
}

// The name of an object in messages about missing attributes.
std::string object_name(const Value& object) {
  switch (object.kind) {
    case Kind::kNone: return "None";
    case Kind::kNamespace: return "jinja2.utils.Namespace object";
    case Kind::kLoop: return "jinja2.runtime.LoopContext object";
    case Kind::kCycler: return "jinja2.utils.Cycler object";
    case Kind::kJoiner: return "jinja2.utils.Joiner object";
    case Kind::kFunction:
      if (object.function().macro != nullptr) return "jinja2.runtime.Macro object";
      [[fallthrough]];
    default: return std::string(type_name(object)) + " object";
  }
}

class Call {
 public:
  Call(int& calls, int limit) : calls_(calls) {
    if (++calls_ > limit) {
      --calls_;
      raise(fmt::format("macros or loops call each other more than {} levels deep", limit));
    }
  }
  ~Call() { --calls_; }
  Call(const Call&) = delete;
  Call& operator=(const Call&) = delete;

 private:
  int& calls_;
};

}  // namespace

Interpreter::Interpreter(const Syntax& syntax, const Limits& limits, long long now)
    : syntax_(syntax), heap_(limits), now_(now) {
  loop_name_ = syntax.names.find("loop");
  caller_name_ = syntax.names.find("caller");
  varargs_name_ = syntax.names.find("varargs");
  kwargs_name_ = syntax.names.find("kwargs");
  Scope* globals = new_scope(nullptr);
  root_ = globals;
  for (const NamedBuiltin& function : global_functions()) {
    if (syntax.names.find(std::string(function.name)) < 0) continue;
    auto* object = heap_.make<Function>();
    object->name = function.name;
    object->builtin = function.builtin;
    define(object->name, Value::of(object));
  }
}

void Interpreter::define(const std::string& name, Value value) {
  const int id = syntax_.names.find(name);
  if (id >= 0) set_variable(root_, id, std::move(value));
}

Text Interpreter::run() {
  TextBuilder out;
  run_body(syntax_.body, new_scope(root_), out);
  return out.take();
}

Scope* Interpreter::new_scope(Scope* parent) {
  Scope* scope = nullptr;
  if (free_scopes_.empty()) {
    scope = heap_.make<Scope>();
  } else {
    scope = free_scopes_.back();
    free_scopes_.pop_back();
  }
  scope->parent = parent;
  return scope;
}

void Interpreter::release(Scope* scope) {
  if (scope->captured) return;
  scope->variables.clear();
  free_scopes_.push_back(scope);
}

void Interpreter::set_variable(Scope* scope, int name, Value value) {
  heap_.step(scope->variables.size() / kEntriesPerStep);
  for (auto& variable : scope->variables) {
    if (variable.first == name) {
      variable.second = std::move(value);
      return;
    }
  }
  scope->variables.emplace_back(name, std::move(value));
}

const Value* Interpreter::lookup(int name, Scope* scope) {
  size_t looked_at = 0;
  const Value* found = nullptr;
  for (; scope != nullptr && found == nullptr; scope = scope->parent) {
    for (const auto& variable : scope->variables) {
      ++looked_at;
      if (variable.first != name) continue;
      found = &variable.second;
      break;
    }
  }
  heap_.step(looked_at / kEntriesPerStep);
  return found;
}

// Statements.

Interpreter::Flow Interpreter::run_body(const Body& body, Scope* scope, TextBuilder& out) {
  const Heap::Depth depth(heap_);
  for (const StmtPtr& stmt : body) {
    const Flow flow = run_statement(*stmt, scope, out);
    if (flow != Flow::kNormal) return flow;
  }
  return Flow::kNormal;
}

Interpreter::Flow Interpreter::run_statement(const Stmt& stmt, Scope* scope, TextBuilder& out) {
  heap_.step();
  offset_ = stmt.offset;
  switch (stmt.kind) {
    case StmtKind::kText:
      heap_.charge(stmt.text->size());
      out.append(*stmt.text);
      heap_.check_text(out.size());
      break;
    case StmtKind::kOutput: run_output(stmt, scope, out); break;
    case StmtKind::kFor: return run_for(stmt, eval(*stmt.expr, scope), scope, 1, out);
    case StmtKind::kIf: return run_if(stmt, scope, out);
    case StmtKind::kSet: assign(stmt.target, eval(*stmt.expr, scope), scope); break;
    case StmtKind::kSetBlock: run_set_block(stmt, scope); break;
    case StmtKind::kMacro: set_variable(scope, stmt.name, make_macro(stmt, scope)); break;
    case StmtKind::kCallBlock: run_call_block(stmt, scope, out); break;
    case StmtKind::kFilterBlock: run_filter_block(stmt, scope, out); break;
    case StmtKind::kWith: run_with(stmt, scope, out); break;
    case StmtKind::kScope: {
      const ScopeGuard inner(*this, scope);
      return run_body(stmt.body, inner.get(), out);
    }
    case StmtKind::kBreak: return Flow::kBreak;
    case StmtKind::kContinue: return Flow::kContinue;
  }
  return Flow::kNormal;
}

void Interpreter::append(TextBuilder& out, const Value& value) {
  const size_t before = out.size();
  append_str(heap_, out, value);
  heap_.charge(out.size() - before);
  heap_.check_text(out.size());
}

[[gnu::noinline]] void Interpreter::run_output(const Stmt& stmt, Scope* scope, TextBuilder& out) {
  append(out, eval(*stmt.expr, scope));
}

[[gnu::noinline]] Interpreter::Flow Interpreter::run_if(const Stmt& stmt, Scope* scope, TextBuilder& out) {
  for (const auto& [test, body] : stmt.branches) {
    if (truthy(eval(*test, scope))) return run_body(body, scope, out);
  }
  return run_body(stmt.otherwise, scope, out);
}

[[gnu::noinline]] Interpreter::Flow Interpreter::run_for(const Stmt& stmt, const Value& iterable, Scope* scope,
                                                         int depth, TextBuilder& out) {
  offset_ = stmt.expr->offset;
  std::vector<Value> items = iterate(heap_, iterable);
  if (stmt.test != nullptr) {
    std::vector<Value> chosen;
    ScopeGuard inner(*this, scope);
    for (Value& item : items) {
      assign(stmt.target, item, inner.get());
      if (truthy(eval(*stmt.test, inner.get()))) chosen.push_back(std::move(item));
      inner.renew();
    }
    items = std::move(chosen);
  }
  // What breaks and continues there is the loop around this one.
  const auto run_otherwise = [&] {
    const ScopeGuard inner(*this, scope);
    return run_body(stmt.otherwise, inner.get(), out);
  };
  if (items.empty()) return run_otherwise();
  Loop* loop = heap_.make<Loop>(items.size() * sizeof(Value));
  loop->items = std::move(items);
  loop->depth = depth;
  if (stmt.recursive) {
    loop->statement = &stmt;
    loop->scope = scope;
    capture(scope);
  }
  bool reached_end = false;  // of the body, in some round
  ScopeGuard inner(*this, scope);
  for (; loop->index < loop->items.size(); ++loop->index) {
    heap_.step();
    if (loop_name_ >= 0) set_variable(inner.get(), loop_name_, Value::of(loop));
    assign(stmt.target, loop->items[loop->index], inner.get());
    const Flow flow = run_body(stmt.body, inner.get(), out);
    if (flow == Flow::kBreak) break;
    reached_end = reached_end || flow == Flow::kNormal;
    inner.renew();
  }
  // A loop without a name cannot be called again (recursive loops), so its items are freed.
  if (loop_name_ < 0) std::vector<Value>().swap(loop->items);
  // As in Jinja, where that is what tells an empty loop.
  return reached_end ? Flow::kNormal : run_otherwise();
}

[[gnu::noinline]] void Interpreter::run_set_block(const Stmt& stmt, Scope* scope) {
  const ScopeGuard inner(*this, scope);
  Value text = run_to_text(stmt.body, inner.get());
  if (stmt.expr != nullptr) text = eval_filter(*stmt.expr, inner.get(), &text);
  assign(stmt.target, text, scope);
}

[[gnu::noinline]] void Interpreter::run_filter_block(const Stmt& stmt, Scope* scope, TextBuilder& out) {
  const ScopeGuard inner(*this, scope);
  const Value text = run_to_text(stmt.body, inner.get());
  append(out, eval_filter(*stmt.expr, inner.get(), &text));
}

[[gnu::noinline]] void Interpreter::run_call_block(const Stmt& stmt, Scope* scope, TextBuilder& out) {
  const Value caller = make_macro(*stmt.callee, scope);
  append(out, eval_call(*stmt.expr, scope, &caller));
}

[[gnu::noinline]] void Interpreter::run_with(const Stmt& stmt, Scope* scope, TextBuilder& out) {
  const ScopeGuard inner(*this, scope);
  for (const auto& [target, expr] : stmt.assignments) assign(target, eval(*expr, scope), inner.get());
  run_body(stmt.body, inner.get(), out);
}

Value Interpreter::run_to_text(const Body& body, Scope* scope) {
  TextBuilder out;
  run_body(body, scope, out);
  return heap_.text(std::move(out));
}

void Interpreter::assign(const Target& target, const Value& value, Scope* scope) {
  if (target.is_tuple) {
    offset_ = target.offset;
    if (!value.is_undefined() && !value.is_string() && !value.is(Kind::kSequence) && !value.is(Kind::kDict)) {
      raise(fmt::format("cannot unpack non-iterable {} object", type_name(value)));
    }
    const std::vector<Value> items = iterate(heap_, value);
    const size_t expected = target.elements.size();
    if (items.size() < expected) {
      raise(fmt::format("not enough values to unpack (expected {}, got {})", expected, items.size()));
    }
    if (items.size() > expected) raise(fmt::format("too many values to unpack (expected {})", expected));
    for (size_t i = 0; i < expected; ++i) assign(target.elements[i], items[i], scope);
    return;
  }
  if (target.attribute.empty()) return set_variable(scope, target.name, value);
  offset_ = target.offset;
  const Value* object = lookup(target.name, scope);
  if (object == nullptr || !object->is(Kind::kNamespace)) raise("cannot assign attribute on non-namespace object");
  if (target.attribute.starts_with('_')) {
    raise(fmt::format("a namespace cannot hold the attribute '{}', which starts with an underscore", target.attribute));
  }
  heap_.check_items(object->ns().attributes.size());
  heap_.step(object->ns().attributes.size() / kEntriesPerStep);
  object->ns().set(Value::literal(target.attribute), value);
}

// Expressions.

Value Interpreter::eval(const Expr& expr, Scope* scope) {
  heap_.step();
  const Heap::Depth depth(heap_);
  switch (expr.kind) {
    case ExprKind::kConstant: return expr.constant;
    case ExprKind::kName: return eval_name(expr, scope);
    case ExprKind::kTuple:
    case ExprKind::kList: return eval_items(expr, scope);
    case ExprKind::kDict: return eval_dict(expr, scope);
    case ExprKind::kUnary: return eval_unary(expr, scope);
    case ExprKind::kBinary: return eval_binary(expr, scope);
    case ExprKind::kConcat: return eval_concat(expr, scope);
    case ExprKind::kCompare: return eval_compare(expr, scope);
    case ExprKind::kAnd:
    case ExprKind::kOr: {
      Value left = eval(*expr.children[0], scope);
      if (truthy(left) == (expr.kind == ExprKind::kOr)) return left;
      return eval(*expr.children[1], scope);
    }
    case ExprKind::kConditional: return eval_conditional(expr, scope);
    case ExprKind::kAttribute: return eval_attribute(expr, scope);
    case ExprKind::kItem: return eval_item(expr, scope);
    case ExprKind::kCall: return eval_call(expr, scope, nullptr);
    case ExprKind::kFilter: return eval_filter(expr, scope, nullptr);
    case ExprKind::kTest: return eval_test(expr, scope);
    case ExprKind::kSlice: break;  // the parser makes slices only below items
  }
  return Value::none();
}

[[gnu::noinline]] Value Interpreter::eval_name(const Expr& expr, Scope* scope) {
  if (const Value* found = lookup(expr.name, scope)) return *found;
  return Value::undefined(fmt::format("'{}' is undefined", syntax_.names[expr.name]));
}

[[gnu::noinline]] Value Interpreter::eval_items(const Expr& expr, Scope* scope) {
  std::vector<Value> items;
  items.reserve(expr.children.size());
  for (const ExprPtr& child : expr.children) items.push_back(eval(*child, scope));
  offset_ = expr.offset;
  return heap_.list(std::move(items), expr.kind == ExprKind::kTuple ? SequenceKind::kTuple : SequenceKind::kList);
}

[[gnu::noinline]] Value Interpreter::eval_dict(const Expr& expr, Scope* scope) {
  Dict* dict = heap_.new_dict();
  for (size_t i = 0; i + 1 < expr.children.size(); i += 2) {
    Value key = eval(*expr.children[i], scope);
    Value value = eval(*expr.children[i + 1], scope);
    offset_ = expr.children[i]->offset;
    heap_.charge_key(key);
    dict->set(std::move(key), std::move(value));
  }
  offset_ = expr.offset;
  return heap_.finish(dict);
}

[[gnu::noinline]] Value Interpreter::eval_unary(const Expr& expr, Scope* scope) {
  const Value value = eval(*expr.children[0], scope);
  offset_ = expr.offset;
  return negate(heap_, expr.op, value);
}

[[gnu::noinline]] Value Interpreter::eval_binary(const Expr& expr, Scope* scope) {
  const Value left = eval(*expr.children[0], scope);
  const Value right = eval(*expr.children[1], scope);
  offset_ = expr.offset;
  if (expr.op == Op::kModulo && left.is_string()) return percent_format(heap_, left, right);
  return arithmetic(heap_, expr.op, left, right);
}

[[gnu::noinline]] Value Interpreter::eval_concat(const Expr& expr, Scope* scope) {
  TextBuilder out;
  for (const ExprPtr& child : expr.children) append(out, eval(*child, scope));
  offset_ = expr.offset;
  return heap_.text(std::move(out));
}

[[gnu::noinline]] Value Interpreter::eval_compare(const Expr& expr, Scope* scope) {
  Value left = eval(*expr.children[0], scope);
  for (size_t i = 0; i < expr.ops.size(); ++i) {
    Value right = eval(*expr.children[i + 1], scope);
    offset_ = expr.offset;
    if (!compare(heap_, expr.ops[i], left, right)) return Value::of(false);
    left = std::move(right);
  }
  return Value::of(true);
}

[[gnu::noinline]] Value Interpreter::eval_conditional(const Expr& expr, Scope* scope) {
  if (truthy(eval(*expr.children[0], scope))) return eval(*expr.children[1], scope);
  if (expr.children.size() > 2) return eval(*expr.children[2], scope);
  return Value::undefined("the inline if-expression evaluated to false and no else section was defined.");
}

[[gnu::noinline]] Value Interpreter::eval_attribute(const Expr& expr, Scope* scope) {
  const Value object = eval(*expr.children[0], scope);
  offset_ = expr.offset;
  return attribute(object, expr.text);
}

[[gnu::noinline]] Value Interpreter::eval_item(const Expr& expr, Scope* scope) {
  const Value object = eval(*expr.children[0], scope);
  const Expr& key = *expr.children[1];
  if (key.kind != ExprKind::kSlice) {
    const Value index = eval(key, scope);
    offset_ = expr.offset;
    return item(object, index);
  }
  Value bounds[3];
  for (size_t i = 0; i < 3; ++i) {
    if (key.children[i] != nullptr) bounds[i] = eval(*key.children[i], scope);
  }
  offset_ = expr.offset;
  return slice_value(heap_, object, bounds[0], bounds[1], bounds[2]);
}

[[gnu::noinline]] Arguments Interpreter::eval_arguments(const CallArguments& arguments, Scope* scope) {
  Arguments out;
  out.positional.reserve(arguments.positional.size());
  for (const ExprPtr& expr : arguments.positional) out.positional.push_back(eval(*expr, scope));
  if (arguments.star != nullptr) {
    for (Value& item : iterate(heap_, eval(*arguments.star, scope))) out.positional.push_back(std::move(item));
  }
  for (const auto& [name, expr] : arguments.named) out.named.emplace_back(name, eval(*expr, scope));
  if (arguments.star_star != nullptr) {
    const Value dict = eval(*arguments.star_star, scope);
    if (!dict.is(Kind::kDict)) raise(fmt::format("argument after ** must be a mapping, not {}", type_name(dict)));
    constexpr size_t kMaxNamed = 255;
    if (dict.dict().entries.size() > kMaxNamed) raise(fmt::format("more than {} keyword arguments", kMaxNamed));
    for (const auto& [key, value] : dict.dict().entries) {
      if (!key.is_string()) raise("keywords must be strings");
      heap_.charge(key.text().size());
      for (const auto& other : out.named) {
        if (other.first == key.view()) raise(fmt::format("got multiple values for keyword argument '{}'", other.first));
      }
      out.named.emplace_back(key.view(), value);
      out.user_names |= key.text().any_user();
    }
  }
  return out;
}

[[gnu::noinline]] Value Interpreter::eval_call(const Expr& expr, Scope* scope, const Value* caller) {
  const Expr& function = *expr.children[0];
  Builtin method = nullptr;
  Value callee;
  if (function.kind == ExprKind::kAttribute) {  // a method is called without becoming an object first
    const Value object = eval(*function.children[0], scope);
    offset_ = function.offset;
    method = find_method(object, function.text);
    callee = method != nullptr ? object : attribute(object, function.text);
  } else {
    callee = eval(function, scope);
  }
  Arguments arguments = eval_arguments(expr.arguments, scope);
  if (caller != nullptr) arguments.named.emplace_back("caller", *caller);
  offset_ = expr.offset;
  return method != nullptr ? method(*this, callee, arguments) : call(callee, arguments);
}

[[gnu::noinline]] Value Interpreter::eval_filter(const Expr& expr, Scope* scope, const Value* head) {
  const ExprPtr& inner = expr.children[0];
  Value value;
  if (inner == nullptr) {
    value = *head;
  } else if (head != nullptr && inner->kind == ExprKind::kFilter) {
    value = eval_filter(*inner, scope, head);
  } else {
    value = eval(*inner, scope);
  }
  Arguments arguments = eval_arguments(expr.arguments, scope);
  offset_ = expr.offset;
  return filter(expr.text, value, arguments);
}

[[gnu::noinline]] Value Interpreter::eval_test(const Expr& expr, Scope* scope) {
  const Value value = eval(*expr.children[0], scope);
  Arguments arguments = eval_arguments(expr.arguments, scope);
  offset_ = expr.offset;
  return Value::of(test(expr.text, value, arguments));
}

Value Interpreter::filter(std::string_view name, const Value& value, Arguments& arguments) {
  const Builtin builtin = find_filter(name);
  if (builtin == nullptr) raise(fmt::format("No filter named '{}'.", name));
  heap_.step();
  return builtin(*this, value, arguments);
}

bool Interpreter::test(std::string_view name, const Value& value, Arguments& arguments) {
  const TestFunction function = find_test(name);
  if (function == nullptr) raise(fmt::format("No test named '{}'.", name));
  heap_.step();
  return function(*this, value, arguments);
}

// Attributes and items.

std::optional<Value> Interpreter::own_attribute(const Value& object, std::string_view name) {
  const auto unsafe = [&] {
    return Value::undefined(fmt::format("access to attribute '{}' of '{}' object is unsafe.", name, type_name(object)));
  };
  if (name.starts_with("__") && name.ends_with("__")) return unsafe();
  if (const Builtin method = find_method(object, name)) {
    auto* function = heap_.make<Function>();
    function->name = name;
    function->builtin = method;
    function->self = object;
    return Value::of(function);
  }
  if (is_forbidden_method(object, name)) return unsafe();
  switch (object.kind) {
    case Kind::kNamespace:
      heap_.step(object.ns().attributes.size() / kEntriesPerStep);
      if (const Value* found = object.ns().find(name)) return *found;
      return {};
    case Kind::kLoop: {
      Value value = loop_attribute(object.loop(), name);
      if (!value.is_undefined() || name == "previtem" || name == "nextitem") return value;
      return {};
    }
    case Kind::kCycler:
      if (name == "current" && !object.cycler().items.empty()) return object.cycler().items[object.cycler().position];
      return {};
    case Kind::kFunction:
      if (name == "name" && object.function().macro != nullptr) return heap_.text(object.function().name, false);
      return {};
    case Kind::kSequence:
      if (object.sequence().kind == SequenceKind::kGroup) {
        if (name == "grouper") return object.sequence().items[0];
        if (name == "list") return object.sequence().items[1];
      }
      return {};
    default: return {};
  }
}

Value Interpreter::attribute(const Value& object, std::string_view name) {
  require_defined(object);
  if (auto own = own_attribute(object, name)) return *own;
  if (object.is(Kind::kDict)) {
    if (const Value* found = object.dict().find(name)) return *found;
  }
  return Value::undefined(fmt::format("'{}' has no attribute {}", object_name(object), repr_text(name)));
}

Value Interpreter::item(const Value& object, const Value& key) {
  require_defined(object);
  if (auto found = item_of(heap_, object, key)) return *found;
  if (key.is_string()) {
    heap_.charge_characters(key.text().size());  // for the message, which shows it
    if (auto own = own_attribute(object, key.view())) return *own;
    return Value::undefined(fmt::format("'{}' has no attribute {}", object_name(object), repr_text(key.view())));
  }
  TextBuilder shown;
  append_repr(heap_, shown, key);
  return Value::undefined(fmt::format("{} has no element {}", object_name(object), shown.view()));
}

// Calls.

Value Interpreter::call(const Value& callee, Arguments& arguments) {
  require_defined(callee);
  heap_.step();
  if (callee.is(Kind::kFunction)) {
    const Function& function = callee.function();
    if (function.macro != nullptr) return call_macro(function, arguments);
    return function.builtin(*this, function.self, arguments);
  }
  if (callee.is(Kind::kLoop)) return call_loop(callee.loop(), arguments);
  if (callee.is(Kind::kJoiner)) {
    Joiner& joiner = callee.joiner();
    return std::exchange(joiner.used, true) ? joiner.separator : heap_.text(std::string(), false);
  }
  raise(fmt::format("'{}' object is not callable", type_name(callee)));
}

Value Interpreter::make_macro(const Stmt& stmt, Scope* scope) {
  auto* function = heap_.make<Function>();
  function->name = stmt.macro_name;
  function->macro = &stmt;
  function->scope = scope;
  capture(scope);
  return Value::of(function);
}

[[gnu::noinline]] Value Interpreter::call_macro(const Function& function, Arguments& arguments) {
  const Call counted(calls_, heap_.limits().calls);
  const Stmt& macro = *function.macro;
  const ScopeGuard scope(*this, function.scope);
  const size_t count = macro.parameters.size();
  const size_t positional = std::min(arguments.positional.size(), count);
  std::vector<bool> used(arguments.named.size());
  const auto take_named = [&](std::string_view name) -> const Value* {
    for (size_t i = 0; i < arguments.named.size(); ++i) {
      if (!used[i] && arguments.named[i].first == name) {
        used[i] = true;
        return &arguments.named[i].second;
      }
    }
    return nullptr;
  };
  std::vector<const Parameter*> missing;
  for (size_t i = 0; i < count; ++i) {
    const Parameter& parameter = macro.parameters[i];
    const Value* given = i < positional ? &arguments.positional[i] : take_named(syntax_.names[parameter.name]);
    if (given != nullptr) {
      set_variable(scope.get(), parameter.name, *given);
    } else {
      missing.push_back(&parameter);
    }
  }
  if (macro.uses_caller) {
    const Value* caller = take_named("caller");
    set_variable(scope.get(), caller_name_, caller ? *caller : Value::undefined("No caller defined"));
  }
  if (macro.uses_kwargs) {
    Dict* kwargs = heap_.new_dict();
    for (size_t i = 0; i < arguments.named.size(); ++i) {
      if (!used[i]) kwargs->set(heap_.text(arguments.named[i].first, arguments.user_names), arguments.named[i].second);
    }
    set_variable(scope.get(), kwargs_name_, heap_.finish(kwargs));
  } else {
    for (size_t i = 0; i < arguments.named.size(); ++i) {
      if (used[i]) continue;
      raise(arguments.named[i].first == "caller"
                ? fmt::format("macro '{}' was invoked with two values for the special caller argument.", function.name)
                : fmt::format("macro '{}' takes no keyword argument '{}'", function.name, arguments.named[i].first));
    }
  }
  if (macro.uses_varargs) {
    std::vector<Value> rest(arguments.positional.begin() + static_cast<ptrdiff_t>(positional),
                            arguments.positional.end());
    set_variable(scope.get(), varargs_name_, heap_.tuple(std::move(rest)));
  } else if (arguments.positional.size() > count) {
    raise(fmt::format("macro '{}' takes not more than {} argument(s)", function.name, count));
  }
  for (const Parameter* parameter : missing) {
    Value value =
        parameter->fallback != nullptr
            ? eval(*parameter->fallback, scope.get())
            : Value::undefined(fmt::format("parameter '{}' was not provided", syntax_.names[parameter->name]));
    set_variable(scope.get(), parameter->name, std::move(value));
  }
  return run_to_text(macro.body, scope.get());
}

Value Interpreter::call_loop(Loop& loop, Arguments& arguments) {
  if (loop.statement == nullptr) raise("The loop must have the 'recursive' marker to be called recursively.");
  if (arguments.positional.size() != 1 || !arguments.named.empty()) raise("a recursive loop takes one iterable");
  const Call counted(calls_, heap_.limits().calls);
  TextBuilder out;
  run_for(*loop.statement, arguments.positional[0], loop.scope, loop.depth + 1, out);
  return heap_.text(std::move(out));
}

Value Interpreter::loop_attribute(Loop& loop, std::string_view name) {
  const auto index = static_cast<int64_t>(loop.index);
  const auto size = static_cast<int64_t>(loop.items.size());
  if (name == "index") return Value::of(index + 1);
  if (name == "index0") return Value::of(index);
  if (name == "first") return Value::of(index == 0);
  if (name == "last") return Value::of(index + 1 >= size);
  if (name == "length") return Value::of(size);
  if (name == "revindex") return Value::of(size - index);
  if (name == "revindex0") return Value::of(size - index - 1);
  if (name == "depth") return Value::of(int64_t{loop.depth});
  if (name == "depth0") return Value::of(int64_t{loop.depth - 1});
  if (name == "previtem") {
    if (index == 0) return Value::undefined("there is no previous item");
    return loop.items[loop.index - 1];
  }
  if (name == "nextitem") {
    if (index + 1 >= size) return Value::undefined("there is no next item");
    return loop.items[loop.index + 1];
  }
  return Value::undefined("");
}

}  // namespace qgen::jinja
