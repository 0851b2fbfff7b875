#include "user/generated/collector.h"

#include <fmt/format.h>

#include <algorithm>
#include <utility>

namespace dynprof {

Collector::Collector(const GeneratedLimits& limits, GeneratedCode code)
    : limits_(limits), code_(std::move(code)) {
  for (const GeneratedFile& file : code_.files) {
    names_.keep(file.trace_id, file.name);
    bytes_ += file.content.size();
  }
}

std::size_t Collector::room() const {
  return std::min(limits_.file_bytes, limits_.total_bytes - std::min(bytes_, limits_.total_bytes));
}

bool Collector::place() {
  if (code_.files.size() < limits_.files && room() != 0) return true;
  left_out_ = true;
  return false;
}

void Collector::add(GeneratedFile file, std::string_view hint, std::string_view extension) {
  if (!place()) return;
  if (file.content.size() > room()) {
    file.content.resize(room());
    file.truncated = true;
  }
  bytes_ += file.content.size();
  file.name = names_.make(file.trace_id, hint, extension);
  code_.files.push_back(std::move(file));
}

GeneratedCode Collector::take() {
  if (left_out_) {
    std::string sentence = fmt::format("files beyond {} of them, or {} MB in all", limits_.files,
                                       limits_.total_bytes >> 20);
    // The one that these files were taken from may have said so.
    if (std::find(code_.missing.begin(), code_.missing.end(), sentence) == code_.missing.end())
      missing(std::move(sentence));
  }
  return std::move(code_);
}

}  // namespace dynprof
