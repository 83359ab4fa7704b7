"""Writes tests/golden-chat/cases.json: small chat templates rendered by transformers itself.

Each case is a template, a conversation, variables, and the text or the error that transformers gives. The
date is fixed, so running it again gives the same file.

    python -m venv oracle && oracle/bin/pip install -r tools/requirements-chat-oracle.txt
    oracle/bin/python tools/chat_oracle.py
"""

import datetime
import json
import pathlib

from transformers.utils import chat_template_utils

NOW = datetime.datetime(2026, 11, 21, 12, 0, 0)


class FixedDate(datetime.datetime):
    @classmethod
    def now(cls, tz=None):
        return NOW


chat_template_utils.datetime = FixedDate

CHAT = [
    {"role": "system", "content": "Be brief."},
    {"role": "user", "content": "Hi <|im_end|> there"},
    {"role": "assistant", "content": "<think>\nhm\n</think>\n\nyes", "reasoning_content": "why"},
    {"role": "user", "content": "  Größe 日本 🙂\t\"q\" 'p'\n", "name": "Ann"},
]
TOOL_CHAT = [
    {"role": "user", "content": "weather?"},
    {
        "role": "assistant",
        "content": "",
        "tool_calls": [
            {
                "type": "function",
                "id": "abc123def",
                "function": {"name": "get", "arguments": {"city": "Köln <b>", "n": 3, "f": 1.5, "ok": True, "no": None, "l": [1, [2]], "d": {}}},
            }
        ],
    },
    {"role": "tool", "content": "12°", "name": "get"},
]
VARIABLES = {
    "bos_token": "<s>",
    "eos_token": "</s>",
    "n": 7,
    "f": 2.5,
    "s": "Hello, World-wide web",
    "u": "äöü ß 日本🙂 x",
    "l": [3, 1, 2],
    "w": ["pear", "Apple", "fig", "apple"],
    "d": {"b": 2, "a": 1, "C": 3},
    "e": "",
    "t": True,
    "z": None,
    "p": [{"n": "x", "v": 2, "o": {"k": 1}}, {"n": "y", "v": 1, "o": {"k": 2}}, {"n": "X", "v": 3, "o": {"k": 3}}],
    "tree": [{"v": 1, "c": [{"v": 2, "c": [{"v": 3, "c": []}]}, {"v": 4, "c": []}]}],
}

# Expressions, each printed.
EXPRESSIONS = r"""
1 + 2 * 3
2 ** 3 ** 2
-2 ** 2
7 // 2
-7 // 2
7 % 3
-7 % 3
7 % -3
7 / 2
6 / 3
7.5 // 2
-7.5 % 2
1e3
1.5e-7
1e16
123456789012345.0
1e22
0.1 + 0.2
1_000 + 0x1F + 0b11 + 0o17
2 ** -1
0.0
-0.0
5 % 2.5
n ~ s ~ z ~ t
"a" "b" 'c'
"tab\tnl\\n\x41\u00e9\U0001F642\101\q"
'it''s'
"a" + 'b' * 3
3 * "ab"
[1, 2] + [3]
[1] * 3
(1, 2) + (3,)
()
(1,)
(1, 2)
[]
[1, "a", 2.0, none, true, "it's", 'say "x"', 'both \' and "']
{}
{"a": 1, 2: [1], none: false, "n": {"x": (1,)}}
"a\nb\t\\ \x00 \x7f é 日 \u200b 🙂" | list
["a\nb\t\\ \x00 \x7f é 日 \u200b 🙂"]
True, False, None
true and 1
0 or "x"
not 0
not not 1
1 < 2 < 3
1 < 3 < 2
1 == 1.0
"a" < "b"
[1, 2] < [1, 3]
1 != 2 == 2
"ell" in "Hello"
"x" not in "Hello"
3 in l
"a" in d
1 in (1, 2)
not 1 in l
"yes" if t else "no"
"yes" if e
("yes" if e) is defined
1 if 0 else 2 if 0 else 3
l[0], l[-1], l[1:], l[:-1], l[::-1], l[5:], l[::2]
u[0], u[-1], u[2:5], u[::-1], u[::2], u[7:9]
u[-3:-1]
s[1], s[-1], s[100:], s[5:1]
s[10]
l[10] is defined
l[10]
d.a, d["b"], d.C
d.missing is defined
d["missing"]
d.items()
d.keys() | list
d.values() | list
d.get("a"), d.get("q"), d.get("q", 5)
d.items() | list
d | items | list
p[0].n, p[0]["o"].k, p.0.n
missing
missing is undefined
missing | default("dflt")
e | default("dflt")
e | default("dflt", true)
e | d("x", boolean=true)
missing | length
missing | list
s | length, u | length, l | count, d | length
s | upper, s | lower, s | title, s | capitalize
u | upper
u | title
"ǆ ﬁ ŉ İ ΐ" | upper
"ǆ ﬁ ŉ İ" | title
"ÀÉ ΣΑΣ" | lower
"foo-bar (baz) it's" | title
"they're bill's".title()
"abc DEF".swapcase()
"x y z" | replace("y", "q")
"aaa" | replace("a", "b", 2)
"abc".replace("", "-")
"aXbXc".replace("X", "--", 1)
" \t a b \n" | trim
"xxaxx" | trim("x")
"  a ".strip() ~ "|" ~ "  a ".lstrip() ~ "|" ~ "  a ".rstrip() ~ "|"
"xyaxy".strip("xy"), "xya".lstrip("x"), "axy".rstrip("yx")
"\u3000a\u00a0".strip()
"a,b,,c".split(","), "a b  c ".split(), "a,b,c".split(",", 1), " a  b  c ".split(none, 1)
"a,b,c".rsplit(",", 1), " a  b  c ".rsplit(none, 1), "".split(), "".split(",")
"abc".split("abc")
"a\nb\r\nc\rd\x0be\u2028f".splitlines()
"a\nb\n".splitlines(true)
"a\nb\n".splitlines()
s.startswith("Hell"), s.startswith(("x", "Hello")), s.endswith("web"), s.startswith("ello", 1), s.endswith(("a", "b"))
"abcabc".find("c"), "abcabc".rfind("c"), "abc".find("z"), "abc".index("b"), "abcabc".count("bc"), "日本語".find("語")
"abc".find("c", 1, 2)
"-".join(["a", "b"]), "".join("abc"), ", ".join(d)
"12".isdigit(), "a1".isdigit(), "²".isdigit(), "".isdigit(), "äb".isalpha(), " \n".isspace(), "a1".isalnum()
"AB".isupper(), "ab".islower(), "Ab".islower(), "1".isupper()
"{} {}".format(1, "x"), "{1}{0}".format("a", "b"), "{x}".format(x=3), "{0.a} {0[b]}".format(d)
"{:>5}|{:<5}|{:^5}|{:05d}|{:+d}|{:.2f}|{:x}|{:,}".format("a", "b", "c", 42, 5, 3.14159, 255, 1234567)
"{!r} {{}} {:*^9}".format("q", "mid")
"{:{}}|".format("a", 4)
"{:8.3f}|{:e}|{:g}|{:%}|{:#x}|{:b}|{:_}".format(3.14159, 12345.678, 0.0001, 0.25, 255, 5, 1234567)
"%s %d %5.2f %r %% %x" % ("a", 3, 2.5, "q", 255)
"%s" % 5
"%s" % "a"
"%(a)s-%(b)05d" % d
"%-5s|%5s|%+d|% d|%05d" % ("a", "b", 3, 4, -5)
"%c%c" % (65, "b")
"%s-%s" | format("a", 1)
"%(x)s" | format(x=4)
"prefix-x".removeprefix("prefix-"), "x.txt".removesuffix(".txt"), "x".removeprefix("y")
"42".zfill(5), "-42".zfill(5), "a".center(4), "a".ljust(3) ~ "|", "a".rjust(3)
"a=b=c".partition("="), "a=b=c".rpartition("="), "abc".partition("x")
l.index(1), l.count(3)
l | join, l | join(", "), p | join("/", attribute="n"), "abc" | join("-")
l | first, l | last, "abc" | first, "abc" | last, [] | first, d | first
[] | first is defined
l | list, "aß" | list, d | list
l | sort, l | sort(reverse=true), w | sort, w | sort(case_sensitive=true)
p | sort(attribute="v") | map(attribute="n") | list
p | sort(attribute="n,v") | map(attribute="v") | list
p | sort(attribute="n", reverse=true) | map(attribute="v") | list
w | unique | list, w | unique(true) | list
l | min, l | max, w | min, [] | max, p | max(attribute="v")
l | sum, p | sum(attribute="v"), p | sum("v", 10), [] | sum
[[1], [2]] | sum(start=[])
l | reverse | list, "abc" | reverse, d | reverse | list
p | map(attribute="o.k") | list, p | map(attribute="zz", default="-") | list
w | map("upper") | list, w | map("replace", "p", "q") | join(" ")
l | select("odd") | list, l | reject("gt", 1) | list, [0, 1, "", "a"] | select | list
p | selectattr("v", "equalto", 2) | list
p | selectattr("v", ">", 1) | map(attribute="n") | join(",")
p | rejectattr("n", "in", ["x", "y"]) | list | length
p | selectattr("missing") | list
d | dictsort, d | dictsort(true), d | dictsort(by="value"), d | dictsort(reverse=true)
p | groupby("o.k") | list | length
p | groupby("n") | map("list") | list
[1,2,3,4,5] | batch(2) | list, [1,2,3] | batch(2, "-") | list
[1,2,3,4,5] | slice(3) | list, [1,2,3,4] | slice(3, 0) | list
"a\nb\n\nc" | indent, "a\nb" | indent(2, true), "a\n\nb" | indent("> ", blank=true)
"a\nb\n" | indent
"<a href='x'>&\"" | escape
"<b>" | e
"<p>Hi <b>you</b>\n there</p> &amp; x" | striptags
"a b/c?d=é&" | urlencode, {"a b": 1, "c": "é/"} | urlencode
"foo bar baz qux" | truncate(9), "foo bar baz qux" | truncate(9, true), "foo bar baz qux" | truncate(11), "foo bar baz qux" | truncate(11, false, "...", 0)
"The quick brown fox jumps over" | wordwrap(10)
"abcdefghij kl" | wordwrap(4)
"one two, three's" | wordcount
"mid" | center(9) ~ "|"
"3" | int, "3.7" | int, "x" | int, "x" | int(5), "0x1f" | int(base=16), 3.9 | int, -3.9 | int, " 12 " | int, "1_0" | int, true | int
"3.5" | float, "x" | float, "x" | float(1.5), 3 | float, "1e3" | float
42.55 | round, 42.55 | round(1), 42.55 | round(1, "floor"), 42.55 | round(1, "ceil"), 42 | round, 2.5 | round, 3.5 | round, 0.125 | round(2)
1234 | round(-2)
-3 | abs, -2.5 | abs
5 | string ~ 1.0 | string, none | string, l | string
d | attr("a") is defined, d | attr("items") is defined
"x" | safe
l | pprint
messages | tojson
d | tojson, l | tojson(indent=2), d | tojson(indent=4), {} | tojson(indent=2), [[], {}] | tojson(indent=1)
{"b": [1, {"c": none}], "a": "é\n\"\\ \x7f\x01<>&'"} | tojson
{"b": 1, "a": 2} | tojson(sort_keys=true), d | tojson(separators=(",", ":")), "é🙂" | tojson(ensure_ascii=true)
{1: 1, none: 2, true: 3, 1.5: 4} | tojson
1.0 | tojson, 1e20 | tojson, 0.1 | tojson, (1, 2) | tojson, "x" | tojson
range(3), range(1, 10, 3) | list, range(5, 0, -2) | list, range(0) | list, range(3) | length, range(10)[2:5] | list
dict(a=1, b=2), dict(d, z=0), dict([("x", 1)])
namespace(a=1).a
namespace(a=1)
n is number, n is integer, f is float, f is integer, t is number, t is integer, t is boolean, s is string, l is sequence, s is sequence, d is mapping, d is sequence, l is iterable, n is iterable, z is none, missing is iterable, missing is sequence
n is odd, n is even, n is divisibleby 7, n is divisibleby(2)
n is eq 7, n is equalto 7, n is ne 7, n is lt 8, n is le 7, n is gt 7, n is ge 7, n is lessthan 8, n is greaterthan(8)
n is in [7, 8], "a" is in "abc"
t is true, t is false, n is true, z is sameas none, t is sameas true
"abc" is lower, "ABC" is upper, "Abc" is upper, "1" is lower
range is callable, s is callable, missing is callable
"upper" is filter, "nope" is filter, "odd" is test, "nope" is test
s is not string, missing is not defined, n is not none
s is string and n is number
[1, 2] is sequence or false
l == [3, 1, 2], d == {"a": 1, "b": 2, "C": 3}, (1,) == (1,), l == (3, 1, 2), none == none, missing == missing2
1 in d.values(), "a" in d.keys(), ("a", 1) in d.items()
messages[0].role, messages[-1]["content"], messages | length
messages[1].content.split("<|im_end|>")
messages | selectattr("role", "equalto", "user") | list | length
messages | map(attribute="role") | join(",")
messages[2].content.split("</think>")[-1].lstrip("\n")
messages[3].content | trim | upper
messages[3].content | tojson
messages[3]
messages[3].name ~ messages[0].name
messages[2].thinking
"names" in messages[3], "name" in messages[3]
tools, documents, tools is none, tools is defined
add_generation_prompt
strftime_now("%Y-%m-%d %d %b %Y %H:%M:%S %A %j %%")
cycler("a", "b").next()
joiner("; ")()
[1, 2, 3][1:][0]
(1 if t else 2) + 1
"a" ~ 1 + 2 ~ "b"
2 * 3 ~ 4
"%d items" % l | length
n|string + "x"
-n|abs
(-n)|abs
"abc"[1:]|upper
{"a": {"b": [1, 2]}}.a.b[1]
[x, missing] if false else "ok"
"a" in "abc" and "b" not in "xyz"
s.upper().lower().title()
"{0}{0}".format("ab" * 2)
[1, 2, 3] | map("string") | join("+")
w | map("length") | sum
w | join(" ") | upper
(l | sort)[0]
l | map("float") | list
(d.items() | list)[0][1]
9223372036854775807
-9223372036854775807 - 1
"日本語"[1] ~ "日本語"[-1:]
"x" * 0, [1] * -1
"ab" < "abc", "Z" < "a", "é" > "z"
1.0, 100.0, 1.5e300 * 1e10, 3.14
1 // 0.5, 2 ** 0.5, 2 ** 62
none | default("x"), none | default("x", true)
l | last + 1
"%s" % none, "%s" % [1]
"a.b.c".split(".")[1:] | join("/")
"ΑΣ ΑΣΑ Σ Α'Σ." | lower
"ΌΣΟΣ" | capitalize
loop is defined
[1,2,3]|length == 3
not missing
missing or "fallback"
"x" if missing else "y"
""".strip("\n").split("\n")

# Whole templates.
TEMPLATES = [
    "{% for i in l %}{{ loop.index }}{{ loop.index0 }}{{ loop.revindex }}{{ loop.revindex0 }}{{ loop.first }}{{ loop.last }}{{ loop.length }};{% endfor %}",
    "{% for i in l %}{{ loop.previtem }}<{{ i }}>{{ loop.nextitem }}|{{ loop.previtem is defined }}{{ loop.cycle('a', 'b') }}{{ loop.depth }}{{ loop.depth0 }} {% endfor %}",
    "{% for i in [1,1,2,2,1] %}{{ loop.changed(i) }} {% endfor %}",
    "{% for i in range(6) if i is odd %}{{ i }}/{{ loop.index }}/{{ loop.length }} {% else %}none{% endfor %}",
    "{% for i in [] %}x{% else %}empty{% endfor %}",
    "{% for i in missing %}x{% else %}empty{% endfor %}",
    "{% for k, v in d.items() %}{{ k }}={{ v }},{% endfor %}{% for k in d %}{{ k }}{% endfor %}",
    "{% for a, (b, c) in [(1, (2, 3)), [4, [5, 6]]] %}{{ a }}{{ b }}{{ c }} {% endfor %}",
    "{% for n in tree recursive %}{{ loop.depth }}:{{ n.v }}{% if n.c %}({{ loop(n.c) }}){% endif %}{% endfor %}",
    "{% for i in range(10) %}{% if i == 3 %}{% continue %}{% endif %}{% if i == 6 %}{% break %}{% endif %}{{ i }}{% endfor %}",
    "{% for i in [1] %}{% for j in [] %}{% else %}{% continue %}{% endfor %}z{% else %}E{% endfor %}|{% for i in [1, 2] %}{% for j in [] %}{% else %}{% break %}{% endfor %}z{% endfor %}",
    "{% for x in [1] %}{% break %}{% else %}E{% endfor %}{% for x in [1, 2] %}{% continue %}{% else %}F{% endfor %}",
    "{% for x in [1, 2] %}{% if x == 2 %}{% break %}{% endif %}a{% else %}E{% endfor %}{% for x in [1, 2] %}{% if x == 1 %}{% continue %}{% endif %}b{% else %}F{% endfor %}",
    "{% for i in l %}{% for j in 'ab' %}{{ loop.index }}{{ i }}{{ j }}{% if loop.last %}{% break %}{% endif %}{% endfor %}{{ loop.index }} {% endfor %}",
    "{% set x = 1 %}{% for i in l %}{% set x = x + i %}{{ x }} {% endfor %}{{ x }}",
    "{% set x = 1 %}{% if t %}{% set x = 2 %}{% endif %}{{ x }}",
    "{% if false %}{% set x = 2 %}{% endif %}{{ x is defined }}",
    "{% for i in l %}{% if i == 1 %}{% set q = i %}{% endif %}{{ q is defined }} {% endfor %}{{ q is defined }}",
    "{% set ns = namespace(x=0, y='a') %}{% for i in l %}{% set ns.x = ns.x + i %}{% endfor %}{{ ns.x }}{{ ns.y }}{{ ns.zz is defined }}",
    "{% set ns = namespace() %}{% set ns.a, b = 1, 2 %}{{ ns.a }}{{ b }}",
    "{% set a, b = [1, 2] %}{{ a }}{{ b }}{% set a = 1, 2 %}{{ a }}",
    "{% set x %}block {{ n }}{% endset %}[{{ x }}]{% set y | upper | trim %} abc {% endset %}[{{ y }}]",
    "{% set x %}{% set inner = 5 %}{{ inner }}{% endset %}{{ x }}{{ inner is defined }}",
    "{% set ns = namespace() %}{% set ns.t %}hi{% endset %}{{ ns.t }}",
    "{% macro m(a, b=2, c=a) %}{{ a }}{{ b }}{{ c }}{% endmacro %}{{ m(1) }} {{ m(1, 3) }} {{ m(1, c=9) }} {{ m(b=1, a=0) }} {{ m() }}|",
    "{% macro m(a) %}{{ a }}{{ varargs }}{{ kwargs }}{% endmacro %}{{ m(1, 2, 3, x=4) }}",
    "{% macro m() %}[{{ caller() }}]{% endmacro %}{% call m() %}body {{ n }}{% endcall %}",
    "{% macro m(l) %}{% for i in l %}{{ caller(i, loop.index) }};{% endfor %}{% endmacro %}{% call(x, y=0) m(l) %}{{ x }}-{{ y }}{% endcall %}",
    "{% macro m() %}{{ caller is defined }}{% endmacro %}{{ m() }}",
    "{% macro fact(k) %}{% if k <= 1 %}1{% else %}{{ k * fact(k - 1) | int }}{% endif %}{% endmacro %}{{ fact(5) }}",
    "{% macro m() %}{{ x }}{% endmacro %}{% set x = 1 %}{{ m() }}{% set x = 2 %}{{ m() }}",
    "{% macro m() %}{% set x = 5 %}{{ x }}{% endmacro %}{% set x = 1 %}{{ m() }}{{ x }}",
    "{% for i in l %}{% macro m() %}{{ i }}{% endmacro %}{{ m() }}{% endfor %}{{ m is defined }}",
    "{% set ns = namespace() %}{% for i in l %}{% macro m() %}{{ i }}{% endmacro %}{% if loop.first %}{% set ns.m = m %}{% endif %}{% endfor %}{{ ns.m is defined }}",
    "{% macro a() %}A{{ b() }}{% endmacro %}{% macro b() %}B{% endmacro %}{{ a() }}{{ a.name }}",
    "{% filter upper %}abc {{ s }}{% endfilter %}{% filter replace('a', 'b') | indent(2) %}xa\nya{% endfilter %}",
    "{% with %}{% set x = 1 %}{{ x }}{% endwith %}{{ x is defined }}",
    "{% with a = 1, b = n %}{{ a }}{{ b }}{% endwith %}{{ a is defined }}",
    "{% set a = 5 %}{% with a = 1, b = a %}{{ a }}{{ b }}{% endwith %}{{ a }}",
    "{% raw %}{{ x }} {% if %} {# c #}{% endraw %}",
    "a {%- raw -%} {{ x }} {%- endraw -%} b",
    "a\n  {% raw %}\n x\n  {% endraw %}\nb",
    "a{# comment {{ x }} #}b{#- c -#} c {#+ d +#}\ne",
    "{% generation %}gen {{ n }}{% set g = 1 %}{{ g }}{% endgeneration %}{{ g is defined }}",
    "{% for m in messages %}{% if m.role == 'assistant' %}{% generation %}{{ m.content }}{{ loop.index }}{% endgeneration %}{% endif %}{% endfor %}",
    "{% if n == 1 %}a{% elif n == 7 %}b{% else %}c{% endif %}",
    "{% if not t %}a{% elif z %}b{% else %}c{% endif %}",
    "{% if 1, 2 %}tuple{% endif %}",
    "  {% if t %}\n  yes\n  {% endif %}\nend\n",
    "  {%- if t -%}\n  yes\n  {%- endif -%}\nend\n\n",
    "  {%+ if t +%}\n  yes\n  {%+ endif %}\nend",
    "a\n\t {{ n }}\n  {{- n -}}  \n b",
    "x {% if t %} y {% endif %} z",
    "{% if t %}\n\n a{% endif %}\n\nb",
    "{% for i in l %}\n  - {{ i }}\n{% endfor %}\ndone",
    "{% for i in l -%}\n  - {{ i }}\n{%- endfor %}\ndone",
    "    {# c #}\nx\n    {# c #} y\n",
    "{{ n }}\n{{ n }}\n\n",
    "line1\r\nline2\r{% if t %}\r\nx{% endif %}\r\n",
    "{{ '{{' }}{{ '%}' }}{{ \"}}\" }}",
    "{{ {'a': {'b': 1}}['a']['b'] }}",
    "{{ {'a':{'b':1}}}}",
    "{%set x=1%}{%if x==1%}{{x}}{%endif%}",
    "{% set x = cycler('a', 'b', 'c') %}{{ x.next() }}{{ x.current }}{{ x.next() }}{{ x.reset() }}{{ x.next() }}",
    "{% set j = joiner(', ') %}{% for i in l %}{{ j() }}{{ i }}{% endfor %}",
    "{% for m in messages %}{{ '<|im_start|>' + m.role + '\n' + m.content + '<|im_end|>\n' }}{% endfor %}{% if add_generation_prompt %}<|im_start|>assistant\n{% endif %}",
    "{% for m in messages %}{% if (m['role'] == 'user') != (loop.index0 % 2 == 0) %}{{ raise_exception('must alternate') }}{% endif %}{% endfor %}",
    "{{ bos_token }}{% for m in messages if m.role != 'system' %}[INST] {{ m.content | trim }} [/INST]{% endfor %}{{ eos_token }}",
    "{% set loop_messages = messages[1:] %}{{ loop_messages | length }}{% set messages = messages[:1] %}{{ messages | length }}",
    "{% set it = l | select('gt', 1) %}{% for i in it %}{{ i }}{% endfor %}|{% for i in it %}{{ i }}{% endfor %}|{{ 'T' if it else 'F' }}",
    "{% set it = l | map('string') %}{{ it | first }}{{ it | list }}",
    "{% print n, s %}",
    "{% for x in 'aß日' %}{{ x }}.{% endfor %}",
    "{% for g in p | groupby('v') %}{{ g.grouper }}:{{ g.list | length }}{{ g[0] }} {% endfor %}",
    "{% for a, b in p | groupby('n') %}{{ a }}{{ b | length }}{% endfor %}",
    "{% for row in range(7) | batch(3, 'x') %}{{ row }}{% endfor %}",
    "{% if messages[0].role == 'system' %}{% set sys = messages[0].content %}{% else %}{% set sys = 'd' %}{% endif %}{{ sys }}",
    "{% set content = messages[2].content %}{% if '</think>' in content %}{% set reasoning = content.split('</think>')[0].rstrip('\\n').split('<think>')[-1].lstrip('\\n') %}{% set content = content.split('</think>')[-1].lstrip('\\n') %}{% endif %}{{ reasoning }}|{{ content }}",
    "{%- macro render(c) -%}{%- if c is string -%}{{ c }}{%- else -%}{%- for x in c -%}{{ x.text }}{%- endfor -%}{%- endif -%}{%- endmacro -%}{{ render('a') }}{{ render([{'text': 'b'}]) }}",
    "{% for m in messages | reverse %}{{ m.role }},{% endfor %}{% for m in messages[::-1] %}{{ loop.index0 }}{{ m.role }}{% endfor %}",
    "{% set d2 = dict(d, **{'x': 1}) %}{{ d2 }}{{ d2 | length }}",
    "{% macro m(a, b) %}{{ a }}{{ b }}{% endmacro %}{{ m(*[1, 2]) }}{{ m(**{'a': 3, 'b': 4}) }}",
    "{{ 'a\\\nb' }}",
    "{{ n is == 7 }}",
    "{{ missing.x }}",
    "{{ missing.x is defined }}",
    "{{ missing() }}",
    "{{ missing + 1 }}",
    "{{ 'a' + missing }}",
    "{{ missing < 1 }}",
    "{{ d.missing.x }}",
    "{{ z.x }}",
    "{{ z.x.y }}",
    "{{ z | length }}",
    "{{ n | length }}",
    "{{ z[0] }}|{{ z['a'] }}",
    "{{ z[1:] }}",
    "{% for x in z %}{% endfor %}",
    "{% for x in n %}{% endfor %}",
    "{{ 'a' + 1 }}",
    "{{ 1 + 'a' }}",
    "{{ [1] + 'a' }}",
    "{{ z + 1 }}",
    "{{ 1 < 'a' }}",
    "{{ 1 in n }}",
    "{{ 1 in s }}",
    "{{ 1 / 0 }}",
    "{{ 1 // 0 }}",
    "{{ 1 % 0 }}",
    "{{ 1.5 / 0 }}",
    "{{ n() }}",
    "{{ s.foo() }}",
    "{{ s.foo }}|",
    "{{ l.append(1) }}",
    "{{ d.update({}) }}",
    "{{ d.pop('a') }}",
    "{{ s.__class__.__name__ }}",
    "{{ s | nope }}",
    "{{ s is nope }}",
    "{{ raise_exception('boom ' ~ n) }}",
    "{{ range(10 ** 12) }}",
    "{% set s.x = 1 %}",
    "{% set ns = namespace() %}{% set ns._x = 1 %}",
    "{% set a, b = [1] %}",
    "{% set a, b = [1, 2, 3] %}",
    "{% for a, b in [1] %}{% endfor %}",
    "{% macro m(a) %}{% endmacro %}{{ m(1, 2) }}",
    "{% macro m(a) %}{% endmacro %}{{ m(b=2) }}",
    "{{ 'abc'.split('') }}",
    "{{ 'abc'.index('z') }}",
    "{{ [1].index(2) }}",
    "{{ l | tojson(1, 2, 3, 4, 5) }}",
    "{{ missing | tojson }}",
    "{{ range(3) | tojson }}",
    "{{ {(1, 2): 3} | tojson }}",
    "{{ [1, 'a'] | sort }}",
    "{{ {[1]: 2} }}",
    "{{ '%d' % 'x' }}",
    "{{ '%s %s' % 'x' }}",
    "{{ '%s' % (1, 2) }}",
    "{{ '{}'.format() }}",
    "{{ '{'.format(1) }}",
    "{{ '{x}'.format(y=1) }}",
    "{{ l | select('odd') | length }}",
    "{{ (l | select('odd'))[0] is defined }}",
    "{{ l | map | list }}",
    "{{ s | int | foo }}",
    "{{ ', '.join([1]) }}",
    "{{ loop.index }}",
    "{% for i in l %}{{ loop(l) }}{% endfor %}",
    "{{",
    "{{ }}",
    "{% if %}{% endif %}",
    "{% if t %}",
    "{% endif %}",
    "{% for %}{% endfor %}",
    "{% for x in l %}",
    "{% foo %}",
    "{{ a b }}",
    "{{ (1 }}",
    "{{ [1 }}",
    "{{ 'abc }}",
    "{{ 1 + }}",
    "{{ a | }}",
    "{{ a is }}",
    "{# x",
    "{% raw %}x",
    "{% set 1 = 2 %}",
    "{% set x %}",
    "{{ a.}}",
    "{{ f(a=1, 2) }}",
    "{% macro m(a=1, b) %}{% endmacro %}",
    "{% break %}",
    "{{ x ! y }}",
    "{% else %}",
    "{% call 1 %}{% endcall %}",
    "{{ n is string is number }}",
    "{{ d['a' }}",
    "{% elif x %}",
]

TOOL_TEMPLATES = [
    "{% for m in messages %}{% if m.tool_calls %}{% for c in m.tool_calls %}{{ c.function.name }}{{ c.function.arguments | tojson }}{{ c.id | length }}{% endfor %}{% elif m.role == 'tool' %}<tool>{{ m.content }}</tool>{% endif %}{% endfor %}",
    "{% for m in messages if m.tool_calls is defined %}{% for k, v in m.tool_calls[0].function.arguments | items %}{{ k }}={{ v | tojson if v is not string else v }};{% endfor %}{% endfor %}",
    "{% for m in messages if 'tool_calls' in m %}{{ m.tool_calls[0].function.arguments }}{{ m.tool_calls | tojson(indent=2) }}{% endfor %}",
    "{% for k, v in messages[1].tool_calls[0].function.arguments | dictsort %}{{ k }}:{{ v }},{% endfor %}",
    "{% for m in messages %}{% if loop.previtem and loop.previtem.role == 'assistant' %}after{% endif %}{% if not loop.last and loop.nextitem.role == 'tool' %}before{% endif %}{% endfor %}",
    "{{ messages[1].get('tool_calls')[0]['function']['name'] }}{{ messages[0].tool_calls }}|{{ messages[0].get('tool_calls') }}",
]


def render(template, messages, variables):
    try:
        texts, _ = chat_template_utils.render_jinja_template(
            conversations=[messages], chat_template=template, add_generation_prompt=True, **variables
        )
        return {"text": texts[0]}
    except RecursionError:
        raise
    except Exception as error:  # whatever the template's author would see
        return {"error": f"{type(error).__name__}: {error}"}


def main():
    cases = []

    def add(template, messages, which):
        cases.append({"template": template, "messages": which} | render(template, messages, VARIABLES))

    for expression in EXPRESSIONS:
        add("{{ " + expression + " }}", CHAT, "chat")
    for template in TEMPLATES:
        add(template, CHAT, "chat")
    for template in TOOL_TEMPLATES:
        add(template, TOOL_CHAT, "tools")
    document = {
        "now": int(NOW.timestamp()),
        "variables": VARIABLES,
        "conversations": {"chat": CHAT, "tools": TOOL_CHAT},
        "cases": cases,
    }
    path = pathlib.Path(__file__).parent.parent / "tests" / "golden-chat" / "cases.json"
    path.write_text(json.dumps(document, ensure_ascii=False, indent=1) + "\n")
    errors = sum("error" in case for case in cases)
    print(f"{len(cases)} cases, {errors} of them errors")


if __name__ == "__main__":
    main()
