#include "user/gpu/target_tables.h"

#include <span>

namespace dynprof {
namespace {

constexpr unsigned kMaxFailures = 64;

}  // namespace

std::optional<dynprof_gpu_tables> TargetTables::head() {
  if (failures_ >= kMaxFailures) return std::nullopt;
  ++failures_;  // until it has succeeded
  return memory_.read<dynprof_gpu_tables>(address_);
}

std::optional<std::string> TargetTables::name(std::uint32_t id) {
  const auto tables = head();
  if (!tables || id == 0 || id > tables->name_count) return std::nullopt;
  const auto entry = memory_.read<dynprof_gpu_name_entry>(
      tables->names + std::uint64_t{id - 1} * sizeof(dynprof_gpu_name_entry));
  if (!entry || entry->length == 0 || entry->length > DYNPROF_GPU_MAX_NAME) return std::nullopt;
  std::string text(entry->length, '\0');
  if (!memory_.read(tables->text + entry->offset, std::as_writable_bytes(std::span(text))))
    return std::nullopt;
  failures_ = 0;
  return text;
}

std::optional<dynprof_gpu_record> TargetTables::device(std::uint32_t number) {
  if (number >= DYNPROF_GPU_MAX_DEVICES) return std::nullopt;
  const auto tables = head();
  if (!tables || tables->devices == 0) return std::nullopt;
  const auto device = memory_.read<dynprof_gpu_record>(
      tables->devices + std::uint64_t{number} * sizeof(dynprof_gpu_record));
  if (!device || device->kind != DYNPROF_GPU_DEVICE || device->device != number)
    return std::nullopt;
  failures_ = 0;
  return device;
}

}  // namespace dynprof
