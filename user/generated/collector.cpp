#include "user/generated/collector.h"

#include <fmt/format.h>

#include <algorithm>

namespace dynprof {

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
    missing(fmt::format("files beyond {} of them, or {} MB in all", limits_.files,
                        limits_.total_bytes >> 20));
  }
  return std::move(code_);
}

}  // namespace dynprof
