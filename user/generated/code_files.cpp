#include "user/generated/code_files.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

#include "symbolizer/base/text.h"
#include "symbolizer/python/line_table.h"
#include "user/generated/pyc_file.h"

namespace dynprof {
namespace {

constexpr std::size_t kMaxSource = 4u << 20;     // bytes of one file of the user's
constexpr std::size_t kMaxSources = 32u << 20;   // of all that are read
constexpr std::int32_t kMaxSourceLines = 2'000;  // of one function
constexpr std::string_view kResumePrefix = "torch_dynamo_resume_in_";

// The last line of a code and of those in it.
std::int32_t last_line(const CodeObject& code) {
  std::int32_t last = code.first_line;
  for (const LineRange& range : decode_line_table(code.python, code.line_table, code.first_line)) {
    last = std::max(last, range.line);
  }
  for (const CodeConstant& constant : code.constants) {
    if (constant.code) last = std::max(last, last_line(*constant.code));
  }
  return last;
}

}  // namespace

std::string describe_code(const RemoteCode& code) {
  if (code.unreadable != Unreadable::kNo) return "?";
  return escape_terminal(fmt::format("{} ({}:{})", code.qualname, code.filename, code.first_line));
}

std::string shown_id(const std::string& trace_id) {
  return trace_id.empty() ? "of an unknown compile" : "compile " + trace_id;
}

std::string lines_of(const std::string& text, std::int32_t first, std::int32_t last) {
  std::size_t begin = 0;
  for (std::int32_t line = 1; line < first; ++line) {
    begin = text.find('\n', begin);
    if (begin == std::string::npos) return "";
    ++begin;
  }
  std::size_t end = begin;
  for (std::int32_t line = first; line <= last && end < text.size(); ++line) {
    end = std::min(text.find('\n', end), text.size() - 1) + 1;
  }
  return text.substr(begin, end - begin);
}

void CodeObjectFiles::add(const CompiledCode& code) {
  if (!collector_.place()) return;
  auto text = read_code_text(python_, code.code);
  if (!text) return;
  GeneratedFile file;
  file.trace_id = code.trace_id;
  file.kind = GeneratedKind::kBytecode;
  file.origin = describe_code(text->code);
  file.function = describe_code(python_.codes().read(code.original));
  std::string about =
      fmt::format("# Bytecode made of {}, {}\n", file.function, shown_id(code.trace_id));
  for (const CompiledGraph& graph : code.graphs) {
    about += fmt::format("# calls {}: a compiled graph\n", escape_terminal(graph.name));
    file.calls.push_back({graph.name, true, "", {}});
  }
  for (const NamedValue& resume : code.resume_points) {
    GeneratedCall call{resume.name, false, describe_code(python_.codes().read(resume.value)), {}};
    about += fmt::format("# calls {}: {}\n", escape_terminal(resume.name), call.function);
    for (const CompiledCode& other : codes_.codes) {
      if (other.original == resume.value && !other.trace_id.empty())
        call.compiled_as.push_back(other.trace_id);
    }
    file.calls.push_back(std::move(call));
  }
  GeneratedFile like;
  like.trace_id = file.trace_id;
  like.function = file.function;
  add_listing(std::move(file), about, *text, "bytecode_" + text->code.name);
  add_pyc(code.code, like, "bytecode_" + text->code.name);
  add_pyc(code.original, like, "original_" + text->code.name);
  add_source(code, std::move(like));
}

void CodeObjectFiles::add(const ResumeFunction& resume) {
  if (!collector_.place()) return;
  auto text = read_code_text(python_, resume.code);
  if (!text) return;
  GeneratedFile file;
  file.kind = GeneratedKind::kResumeFunction;
  file.origin = describe_code(text->code);
  file.function = describe_code(python_.codes().read(resume.resumes));
  std::string about = fmt::format("# {} continues {}\n", file.origin, file.function);
  // It belongs to the compile that broke the graph there; several may have made the same call.
  for (const CompiledCode& code : codes_.codes) {
    for (const NamedValue& point : code.resume_points) {
      if (point.value != resume.code) continue;
      about += fmt::format("# called as {} by {}\n", escape_terminal(point.name),
                           shown_id(code.trace_id));
      if (file.trace_id.empty()) file.trace_id = code.trace_id;
    }
  }
  for (const CompiledCode& code : codes_.codes) {
    if (code.original == resume.code)
      about += fmt::format("# {}\n", "was compiled as " + shown_id(code.trace_id));
  }
  GeneratedFile like;
  like.trace_id = file.trace_id;
  like.function = file.function;
  add_listing(std::move(file), about, *text, text->code.name);
  add_pyc(resume.code, std::move(like), text->code.name);
}

void CodeObjectFiles::add_listing(GeneratedFile file, const std::string& about,
                                  const CodeText& text, const std::string& hint) {
  std::vector<Instruction> instructions = decode_instructions(text.body);
  file.content = about + "\n" + list_instructions(instructions);
  if (instructions.empty()) {
    file.problem =
        fmt::format("the instructions of CPython 3.{} cannot be listed", text.body.python & 0xff);
  }
  collector_.add(std::move(file), hint, ".txt");
}

void CodeObjectFiles::add_pyc(std::uint64_t code, GeneratedFile file, const std::string& hint) {
  if (!collector_.place()) return;
  auto read = read_code_object(python_, code);
  auto bytes = read ? pyc_bytes(read->code) : std::nullopt;
  // Part of such a file is of no use.
  if (!bytes || bytes->size() > collector_.room()) return;
  file.kind = GeneratedKind::kCodeObject;
  file.origin = describe_code(python_.codes().read(code));
  file.content = *std::move(bytes);
  if (read->replaced != 0) {
    file.problem = fmt::format(
        "{} of its constants cannot be in a file: they are the text "
        "\"__co_consts[N]\"",
        read->replaced);
  }
  collector_.add(std::move(file), hint, ".pyc");
}

// The file as it is now: what was imported may have been another.
void CodeObjectFiles::add_source(const CompiledCode& code, GeneratedFile file) {
  if (!collector_.place()) return;
  auto read = read_code_object(python_, code.original);
  // A resume function has the lines of the whole function it continues, which is in its own place.
  if (!read || read->code.name.starts_with(kResumePrefix)) return;
  const std::int32_t first = read->code.first_line;
  const std::int32_t last = std::min(last_line(read->code), first + kMaxSourceLines);
  if (first <= 0 || first > kMaxSourceLines * 1000) return;
  file.content = lines_of(source_of(read->code.filename), first, last);
  if (file.content.empty()) return;
  file.kind = GeneratedKind::kSource;
  file.origin = fmt::format("{}:{}", read->code.filename, first);
  file.first_line = first;
  collector_.add(std::move(file), "source_" + read->code.name, ".py");
}

const std::string& CodeObjectFiles::source_of(const std::string& path) {
  auto [place, added] = sources_.try_emplace(path);
  if (!added || source_bytes_ >= kMaxSources) return place->second;
  if (auto text = files_.read(path, kMaxSource)) {
    place->second = std::move(text->content);
    source_bytes_ += place->second.size();
  }
  return place->second;
}

}  // namespace dynprof
