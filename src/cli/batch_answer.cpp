#include "cli/batch_answer.h"

#include <ctime>

#include <fmt/format.h>

#include "base/json.h"
#include "cli/report.h"

namespace qgen::cli {
namespace {

// What OpenAI's clients know; servers have them from their sessions, here the line's number makes them.
std::string envelope(const BatchRequest& request, std::string_view response, std::string_view error) {
  return fmt::format(R"({{"id":"batch_req_{}","custom_id":{},"response":{},"error":{}}})", request.line, request.id,
                     response, error);
}

std::string response(const BatchRequest& request, int status, std::string_view body) {
  return fmt::format(R"({{"status_code":{},"request_id":"req_{}","body":{}}})", status, request.line, body);
}

// An answer that is all thinking is none, however it ended.
std::string_view finish_reason(const BatchAnswer& answer) {
  const std::string_view stop = answer.generation.stop;
  return answer.cut_short.empty() && (stop == "end" || stop == "stop-string") ? "stop" : "length";
}

// The text of one token wherever it stands, with a space that begins it.
std::string token_text(TokenId id, const Tokenizer& tokenizer) {
  const TokenId twice[] = {id, id};
  return tokenizer.decode(twice, false).substr(tokenizer.decode({twice, 1}, false).size());
}

std::string bytes_json(std::string_view text) {
  if (text.find("\xEF\xBF\xBD") != text.npos) return "null";  // a part of a character
  std::string out = "[";
  for (const char c : text) out += fmt::format("{}{}", out.size() == 1 ? "" : ",", int(static_cast<unsigned char>(c)));
  return out + "]";
}

// An entry of chat.completion's "logprobs", without the brace that ends it.
std::string chat_logprob(const TokenLogprob& token, const Tokenizer& tokenizer) {
  const std::string text = token_text(token.token, tokenizer);
  return fmt::format(R"({{"token":{},"logprob":{:.6f},"bytes":{})", json_quote(text), token.logprob, bytes_json(text));
}

std::string chat_logprobs(const Generation& generation, const Tokenizer& tokenizer) {
  std::string out = R"({"content":[)";
  for (size_t i = 0; i < generation.logprobs.size(); ++i) {
    const LogprobEntry& entry = generation.logprobs[i];
    out += fmt::format(R"({}{},"top_logprobs":[)", i == 0 ? "" : ",", chat_logprob(entry.chosen, tokenizer));
    for (size_t j = 0; j < entry.top.size(); ++j)
      out += fmt::format("{}{}}}", j == 0 ? "" : ",", chat_logprob(entry.top[j], tokenizer));
    out += "]}";
  }
  return out + R"(],"refusal":null})";
}

std::string completion_logprobs(const Generation& generation, const Tokenizer& tokenizer) {
  std::vector<std::string> tokens, logprobs, tops, offsets;
  size_t offset = 0;
  for (const LogprobEntry& entry : generation.logprobs) {
    const std::string text = token_text(entry.chosen.token, tokenizer);
    tokens.push_back(json_quote(text));
    logprobs.push_back(fmt::format("{:.6f}", entry.chosen.logprob));
    offsets.push_back(fmt::format("{}", offset));
    offset += text.size();
    std::string top;
    for (const TokenLogprob& token : entry.top) {
      const std::string key = json_quote(token_text(token.token, tokenizer)) + ":";
      // Tokens that are spelled alike are one member.
      if (top.find(key) == top.npos) top += fmt::format("{}{}{:.6f}", top.empty() ? "" : ",", key, token.logprob);
    }
    tops.push_back("{" + top + "}");
  }
  return fmt::format(R"({{"tokens":{},"token_logprobs":{},"top_logprobs":{},"text_offset":{}}})", json_list(tokens),
                     json_list(logprobs), json_list(tops), json_list(offsets));
}

std::string openai_body(const BatchRequest& request, const BatchAnswer& answer, std::string_view model,
                        const Tokenizer& tokenizer) {
  const bool chat = request.form == BatchForm::kChat;
  const Generation& g = answer.generation;
  std::string choice = R"({"index":0,)";
  if (chat) {
    choice += fmt::format(R"("message":{{"role":"assistant","content":{},"refusal":null)", json_quote(answer.text));
    if (!answer.reasoning.empty()) choice += fmt::format(R"(,"reasoning_content":{})", json_quote(answer.reasoning));
    choice += "}";
  } else {
    choice += fmt::format(R"("text":{})", json_quote(answer.text));
  }
  const std::string logprobs = request.options.logprobs == 0 ? "null"
                               : chat                        ? chat_logprobs(g, tokenizer)
                                                             : completion_logprobs(g, tokenizer);
  choice += fmt::format(R"(,"logprobs":{},"finish_reason":"{}"}})", logprobs, finish_reason(answer));
  std::string usage = fmt::format(R"({{"prompt_tokens":{},"completion_tokens":{},"total_tokens":{})", g.prompt_tokens,
                                  g.tokens.size(), g.prompt_tokens + int64_t(g.tokens.size()));
  if (chat) usage += fmt::format(R"(,"completion_tokens_details":{{"reasoning_tokens":{}}})", g.thinking_tokens);
  return fmt::format(R"({{"id":"{}-{}","object":"{}","created":{},"model":{},"choices":[{}],"usage":{}}}}})",
                     chat ? "chatcmpl" : "cmpl", request.line, chat ? "chat.completion" : "text_completion",
                     std::time(nullptr), json_quote(model), choice, usage);
}

}  // namespace

std::string answer_line(const BatchRequest& request, const BatchAnswer& answer, std::string_view model,
                        const Tokenizer& tokenizer) {
  const Generation& g = answer.generation;
  if (request.form != BatchForm::kOwn) {
    if (g.stop == "interrupted")
      return envelope(request, "null", R"({"code":"interrupted","message":"a signal ended the run"})");
    return envelope(request, response(request, 200, openai_body(request, answer, model, tokenizer)), "null");
  }
  std::string out =
      fmt::format(R"({{"schema":1,"line":{},"id":{},"text":{})", request.line, request.id, json_quote(answer.text));
  if (!answer.reasoning.empty()) out += fmt::format(",\"reasoning\":{}", json_quote(answer.reasoning));
  out += fmt::format(
      R"(,"stop":{},"stop_string":{},"cut_short":{},"prompt_tokens":{},"output_tokens":{},"thinking_tokens":{},"seed":{},"seconds":{:.6f},"logits_hash":{})",
      json_quote(g.stop), text_or_null(g.stop_string), text_or_null(answer.cut_short), g.prompt_tokens, g.tokens.size(),
      g.thinking_tokens, answer.seed, g.prompt_seconds + g.output_seconds,
      g.logits_hash == 0 ? "null" : fmt::format("\"{:08x}\"", g.logits_hash));
  if (request.options.logprobs > 0) out += fmt::format(",\"logprobs\":{}", logprobs_json(g, tokenizer));
  return out + "}";
}

std::string error_line(const BatchRequest& request, const Error& error) {
  if (request.form == BatchForm::kOwn) {
    return fmt::format(R"({{"schema":1,"line":{},"id":{},"error":{{"code":{},"message":{},"hint":{}}}}})", request.line,
                       request.id, int(error.kind()), json_quote(error.message()), text_or_null(error.hint()));
  }
  const bool wrong_request = error.kind() == ErrorKind::kUsage;
  const std::string message =
      error.hint().empty() ? error.message() : fmt::format("{} ({})", error.message(), error.hint());
  const std::string body = fmt::format(R"({{"error":{{"message":{},"type":"{}","param":null,"code":null}}}})",
                                       json_quote(message), wrong_request ? "invalid_request_error" : "server_error");
  return envelope(request, response(request, wrong_request ? 400 : 500, body), "null");
}

}  // namespace qgen::cli
