// gpu_dump RECORDING: the GPU's part of a recording, joined, as one JSON document on stdout. Stacks are
// those of sample_dump.
//
//   {"calls": [[pid, tid, correlation, call, name, begin, end, announced, bare, trace id, backward,
//               compiling, stack, works, in a run], ...],
//    "items": [[kind, pid, correlation, device, stream, start, end, name, graph, graph node, call], ...],
//    "devices": [[pid, device, name, processors], ...], "orphans": n}
#include <fmt/format.h>

#include <cstdio>
#include <string>

#include "symbolizer/attribution/gpu_work.h"
#include "symbolizer/base/file_output.h"
#include "symbolizer/base/json_writer.h"
#include "symbolizer/recording/reader.h"

namespace dynprof {
namespace {

class Stdout final : public ByteSink {
 public:
  void write(std::string_view bytes) override {
    failed_ |= std::fwrite(bytes.data(), 1, bytes.size(), stdout) != bytes.size();
  }
  bool failed() const override { return failed_; }
  Result<void> finish() override { return {}; }

 private:
  bool failed_ = false;
};

void write_call(JsonWriter& json, const Tables& tables, const GpuCall& call) {
  json.begin_array();
  json.number(call.pid);
  json.number(call.thread == kNoThread ? -1 : tables.threads[call.thread].tid);
  json.number(call.correlation);
  json.number(call.call);
  json.string(gpu_call_name(call.call));
  json.number(call.begin_ns);
  json.number(call.end_ns);
  json.boolean(call.announced);
  json.boolean(call.bare);
  json.string(is_valid(call.id) ? call.id.text() : "");
  json.boolean(call.backward);
  json.boolean(call.compiling);
  json.number(call.stack);
  json.number(call.works);
  json.boolean(call.run != kNoIndex);
  json.end_array();
}

void write_item(JsonWriter& json, const Tables& tables, const GpuItem& item) {
  const dynprof_gpu_record record = item.row->record;
  json.begin_array();
  json.number(std::uint32_t{record.kind});
  json.number(item.row->pid);
  json.number(std::uint32_t{record.correlation});
  json.number(std::uint32_t{record.device});
  json.number(std::uint32_t{record.stream});
  json.number(std::uint64_t{record.start_ns});
  json.number(std::uint64_t{record.end_ns});
  json.string(tables.strings[record.name]);
  json.number(std::uint32_t{record.graph});
  json.number(std::uint64_t{record.graph_node});
  json.number(item.call == kNoIndex ? -1 : static_cast<std::int64_t>(item.call));
  json.end_array();
}

void write(const Recording& recording) {
  const Attribution attribution(recording);
  const GpuWork gpu(attribution);
  const Tables& tables = recording.tables();
  Stdout out;
  JsonWriter json(out);
  json.begin_object();
  json.key("calls");
  json.begin_array();
  for (const GpuCall& call : gpu.calls()) write_call(json, tables, call);
  json.end_array();
  json.key("items");
  json.begin_array();
  for (const GpuItem& item : gpu.items()) write_item(json, tables, item);
  json.end_array();
  json.key("devices");
  json.begin_array();
  for (const auto& [key, row] : gpu.devices()) {
    json.begin_array();
    json.number(key.first);
    json.number(key.second);
    json.string(gpu.device_name(key.first, key.second));
    json.number(std::uint32_t{row->record.gpu.processors});
    json.end_array();
  }
  json.end_array();
  json.field("orphans", gpu.orphans());
  json.end_object();
  (void)json.finish();
}

}  // namespace
}  // namespace dynprof

int main(int argc, char** argv) {
  if (argc != 2) {
    fmt::print(stderr, "usage: gpu_dump RECORDING\n");
    return 2;
  }
  auto recording = dynprof::Recording::open(argv[1]);
  if (!recording) {
    fmt::print(stderr, "{}\n", recording.error().what);
    return 1;
  }
  dynprof::write(**recording);
  return 0;
}
