// Templates that ask for too much get an Error, soon: no overflow of the stack, no endless run, no full memory.
#include <chrono>
#include <cstdlib>
#include <string>

#include <doctest/doctest.h>
#include <fmt/format.h>

#include "chat/template.h"
#include "tests/chat/chat_support.h"

namespace qgen {
namespace {

using namespace chat_tests;

std::string repeat(const std::string& text, int count) {
  std::string out;
  for (int i = 0; i < count; ++i) out += text;
  return out;
}

double slowness() {
  const char* factor = std::getenv("QGEN_TIME_FACTOR");
  return factor != nullptr ? std::atof(factor) : 1;
}

TEST_CASE("jinja: nesting is limited when parsing") {
  for (const std::string& source :
       {repeat("{{ (", 1) + repeat("(", 100000), "{{ " + repeat("[", 100000), "{{ " + repeat("{1:", 100000),
        "{{ " + repeat("not ", 100000) + "1 }}", "{{ " + repeat("-", 100000) + "1 }}", "{{ " + repeat("a(", 100000),
        "{{ " + repeat("a[", 100000), "{{ a" + repeat("|f(a", 100000), repeat("{% if 1 %}", 100000),
        repeat("{% for a in b %}", 100000), "{% set " + repeat("(", 100000),
        "{{ " + repeat("1 if 1 else ", 100000) + "1 }}", "{{ 1" + repeat(" + 1", 100000) + " }}",
        "{{ a" + repeat(".a", 100000) + " }}", "{{ a" + repeat("|e", 100000) + " }}",
        "{{ a" + repeat("()", 100000) + " }}", "{{ 1" + repeat(" and 1", 100000) + " }}",
        "{{ 1" + repeat(" is odd", 100000) + " }}", "{{ 1" + repeat(" ** 1", 100000) + " }}"}) {
    CAPTURE(source.substr(0, 30));
    CHECK(error_of(source) != "");
  }
  // What is long but not deep is fine.
  CHECK(text_of(render("{{ 1" + repeat(" ~ 1", 1000) + " }}")).size() == 1001);
  CHECK(text_of(render(repeat("{{ 1 }}", 10000))).size() == 10000);
  CHECK(text_of(render("{{ " + repeat("(", 80) + "1" + repeat(")", 80) + " }}")) == "1");
  CHECK(text_of(render("{% if 0 %}" + repeat("{% elif 0 %}", 5000) + "{% else %}x{% endif %}")) == "x");
}

TEST_CASE("jinja: a rendering is limited") {
  for (const char* source : {
           // recursion
           "{% macro m() %}{{ m() }}{% endmacro %}{{ m() }}",
           "{% macro a() %}{{ b() }}{% endmacro %}{% macro b() %}{% for i in [1] %}{{ a() }}{% endfor %}{% endmacro "
           "%}{{ a() }}",
           "{% macro m() %}{% call m() %}{{ caller() }}{% endcall %}{% endmacro %}{{ m() }}",
           "{% macro m(a=m()) %}{% endmacro %}{{ m() }}",
           "{% for x in [1] recursive %}{{ loop([1]) }}{% endfor %}",
           "{% set ns = namespace() %}{% macro m() %}{{ ns.m() }}{% endmacro %}{% set ns.m = m %}{{ m() }}",
           // steps
           "{% for a in range(100000) %}{% for b in range(100000) %}{% endfor %}{% endfor %}",
           "{% for a in range(10000) %}{{ range(100000) | list | length }}{% endfor %}",
           "{% for a in range(10000) %}{{ range(100000) | sum }}{% endfor %}",
           "{% set l = [1] * 1000000 %}{% for a in l %}{{ l == l[:] }}{% endfor %}",
           "{% set l = [1] * 1000000 %}{% for a in l %}{{ 2 in l }}{% endfor %}",
           "{% set l = [1] * 1000000 %}{% for a in l %}{{ l | sort | first }}{% endfor %}",
           // text
           "{{ 'a' * 10 ** 12 }}",
           "{{ 'abc' * 9223372036854775807 }}",
           "{% set ns = namespace(s='a') %}{% for i in range(100) %}{% set ns.s = ns.s + ns.s %}{% endfor %}",
           "{% set ns = namespace(s='a') %}{% for i in range(100) %}{% set ns.s = ns.s ~ ns.s %}{% endfor %}",
           "{% set ns = namespace(s='a') %}{% for i in range(100) %}{% set ns.s = ns.s | replace('a', 'aa') %}{% "
           "endfor %}",
           "{% set ns = namespace(s='a') %}{% for i in range(100) %}{% set ns.s %}{{ ns.s }}{{ ns.s }}{% endset %}{% "
           "endfor %}",
           "{% set s = 'a' * 60000000 %}{{ s }}{{ s }}",
           "{% set s = 'a' * 60000000 %}{{ s | list | length }}",
           "{% set s = 'a' * 1000000 %}{{ ([s] * 1000) | join }}",
           "{% set s = 'a' * 1000000 %}{{ [s] * 1000 }}",
           "{% set s = 'a' * 1000000 %}{{ ([s] * 1000) | tojson }}",
           "{% set s = 'a' * 1000000 %}{% for i in range(100000) %}{% set t = s + 'b' %}{% endfor %}",
           "{% set s = 'a' * 1000000 %}{% for i in range(100000) %}{{ 'b' in s }}{% endfor %}",
           "{% set s = 'a' * 1000000 %}{% for i in range(100000) %}{{ s.upper() | length }}{% endfor %}",
           "{% set s = '1' * 1000000 %}{% for i in range(100000) %}{{ s is upper }}{% endfor %}",
           "{% set s = '1' * 1000000 %}{% for i in range(100000) %}{{ s | float }}{% endfor %}",
           "{% set s = '1' * 1000000 %}{% for i in range(100000) %}{{ {}[s] }}{% endfor %}",
           "{% set s = '1' * 1000000 %}{% set d = {s: 1} %}{% for i in range(100000) %}{{ d[s ~ ''] }}{% endfor %}",
           "{% set s = '1' * 1000000 %}{% for i in range(100000) %}{{ s.startswith(s) }}{% endfor %}",
           "{% set s = '1' * 1000000 %}{% for i in range(100000) %}{{ '%(a)s'.format(**{s: 1}) }}{% endfor %}",
           "{% set s = '1' * 1000000 %}{% for i in range(100000) %}{{ {} | attr(s) }}{% endfor %}",
           "{% set s = '1' * 1000000 %}{% for i in range(100000) %}{{ [{}] | map(attribute=s) | list }}{% endfor %}",
           "{{ '%1000000000d' % 1 }}",
           "{{ '%.1000000000f' % 1 }}",
           "{{ '{:1000000000}'.format(1) }}",
           "{{ 'a'.center(10 ** 12) }}{{ 'a'.zfill(10 ** 12) }}",
           "{{ 'a' | indent(10 ** 12, true) }}",
           "{{ ('a\n' * 100000) | indent(100000) }}",
           // lists and other objects
           "{{ range(10 ** 12) }}",
           "{{ range(-9223372036854775807, 9223372036854775807) }}",
           "{{ [1] * 10 ** 12 }}",
           "{{ [1, 2] * 9223372036854775807 }}",
           "{% set ns = namespace(l=[1]) %}{% for i in range(100) %}{% set ns.l = ns.l + ns.l %}{% endfor %}",
           "{{ [1] | batch(10 ** 12, 'x') | list }}",
           "{{ [1] | slice(10 ** 12) | list }}",
           "{% set ns = namespace(l=[]) %}{% for i in range(100000) %}{% set ns.l = [ns.l] %}{% endfor %}",
           "{% set ns = namespace(l=[]) %}{% for i in range(100000) %}{% set ns.l = {'a': ns.l} %}{% endfor %}",
           "{% set ns = namespace(l=()) %}{% for i in range(150) %}{% set ns.l = (ns.l, ns.l) %}{% endfor %}{{ ns.l }}",
           "{% set ns = namespace(l=()) %}{% for i in range(150) %}{% set ns.l = (ns.l, ns.l) %}{% endfor %}{{ {ns.l: "
           "1} }}",
           "{% set ns = namespace(l=(), m=()) %}{% for i in range(150) %}{% set ns.l = (ns.l, ns.l) %}{% set ns.m = "
           "(ns.m, ns.m) %}{% endfor %}{{ ns.l == ns.m }}",
           "{% set ns = namespace(l=(), m=()) %}{% for i in range(150) %}{% set ns.l = (ns.l, ns.l) %}{% set ns.m = "
           "(ns.m, ns.m) %}{% endfor %}{{ ns.l < ns.m }}",
           "{% set ns = namespace() %}{% set ns.me = ns %}{{ ns }}",
           "{% set ns = namespace() %}{% set ns.me = [ns] %}{{ ns }}",
           // integers
           "{{ 9223372036854775807 + 1 }}",
           "{{ -9223372036854775807 - 2 }}",
           "{{ 3037000500 * 3037000500 }}",
           "{{ 10 ** 30 }}",
           "{{ 9223372036854775808 }}",
           "{{ (-9223372036854775807 - 1) // -1 }}",
           "{{ -(-9223372036854775807 - 1) }}",
           "{{ (-9223372036854775807 - 1) | abs }}",
           "{{ 1e300 | int }}",
           "{{ 'x' | random }}",
       }) {
    CAPTURE(source);
    const auto start = std::chrono::steady_clock::now();
    CHECK(error_of(source) != "");
    const double seconds = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
    if (seconds > 0.5) MESSAGE(seconds);
  }
}

TEST_CASE("jinja: variables and attributes are not looked for free of charge") {
  // Each of a hundred thousand names is found behind all those before it: ten thousand million comparisons.
  std::string variables, attributes = "{% set ns = namespace() %}";
  for (int i = 0; i < 60'000; ++i) {
    variables += fmt::format("{{%set v{0}=1%}}", i);
    if (i < 40'000) attributes += fmt::format("{{%set ns.v{0}=1%}}", i);
  }
  for (const std::string& source : {variables, attributes}) {
    const auto start = std::chrono::steady_clock::now();
    CHECK(error_of(source).find("the template takes more than") != std::string::npos);
    CHECK(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() < 10 * slowness());
  }
  // As many as a template in earnest has cost nothing.
  std::string some;
  for (int i = 0; i < 30; ++i) some += fmt::format("{{%set v{}=1%}}", i);
  CHECK(text_of(render(some + "{% for i in range(100000) %}{% if v29 and v0 %}{% endif %}{% endfor %}x")) == "x");
  CHECK(error_of(std::string(2 << 20, ' ')).find("a template of more than 1048576 bytes") != std::string::npos);
}

TEST_CASE("jinja: searches take linear time") {
  const std::string half(200000, 'a');
  const auto start = std::chrono::steady_clock::now();
  CHECK(text_of(
            render("{% set x = messages[0].content %}{% set y = x[:100000] + 'b' %}{{ y in x }}{{ x.find(y) }}{{ "
                   "x.rfind('b' + y) }}"
                   "{{ x.count(y) }}{{ x.split(y) | length }}{{ x.rsplit(y) | length }}{{ x.replace(y, '') | length }}",
                   half)) == "False-1-1011200000");
  CHECK(std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count() < 5);
}

TEST_CASE("jinja: odd bytes and names are no trouble") {
  CHECK(text_of(render("{{ messages[0].content }}", "a\xFF\xC3")) == "a\uFFFD\uFFFD");
  CHECK(text_of(render("{{ messages[0].content | length }}", std::string("a\0b", 3))) == "3");
  CHECK(error_of("\xFF") != "");
  CHECK(text_of(render("")) == "");
  CHECK(text_of(render("{{ é }}{{ 日本 is defined }}")) == "False");
  for (const char* source :
       {"{{ 1[::0] }}", "{{ 'abc'[::0] }}", "{{ range(1, 2, 0) }}", "{{ 'a'.split('') }}", "{{ '%' % 1 }}",
        "{{ '%(' % {} }}", "{{ '{' .format() }}", "{{ '{0[}'.format(1) }}", "{{ '{:{}}'.format(1) }}",
        "{{ 'x' | int(base=99) }}", "{{ cycler() }}", "{{ [] | batch }}", "{{ 'a' | wordwrap(0) }}",
        "{{ namespace(1) }}", "{{ dict(1) }}", "{{ 1.5 | round(1, 'x') }}"}) {
    CAPTURE(source);
    CHECK(error_of(source) != "");
  }
  CHECK(text_of(render(
            "{{ 'abc'[::9223372036854775807] }}{{ 'abc'[::-9223372036854775807 - 1] }}"
            "{{ 'abc'[-9223372036854775807 - 1:9223372036854775807] }}{{ range(3)[::9223372036854775807] | list }}"
            "{{ range(0, 9223372036854775807, 4611686018427387904) | list }}")) == "acabc[0][0, 4611686018427387904]");
}

}  // namespace
}  // namespace qgen
