// Any bytes as a recording: reading must end, in bounded memory, with every id valid. Built with
// -fsanitize=fuzzer,address,undefined; checksums always match in such a build (format.cpp).
//   clang++ -std=c++20 -g -O1 -I. -fsanitize=fuzzer,address,undefined
//     tests/fuzz/recording_fuzz.cpp symbolizer/recording/*.cpp -lfmt -lz -lzstd
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <string>

#include "symbolizer/recording/row_refs.h"
#include "tests/unit/recording_example.h"

using namespace dynprof;

extern "C" std::size_t LLVMFuzzerMutate(std::uint8_t* data, std::size_t size, std::size_t max_size);

extern "C" std::size_t LLVMFuzzerCustomMutator(std::uint8_t* data, std::size_t size,
                                               std::size_t max_size, unsigned int) {
  // From nothing to a recording is too far: start from one.
  static const std::string example = example_bytes();
  if ((size < 32 || std::memcmp(data, example.data(), 8) != 0) && max_size >= example.size()) {
    std::memcpy(data, example.data(), example.size());
    size = example.size();
  }
  return LLVMFuzzerMutate(data, size, max_size);
}

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  auto result = read_bytes({reinterpret_cast<const char*>(data), size});
  if (!result.has_value()) {
    DYNPROF_CHECK(!result.error().what.empty());
    return 0;
  }
  const Recording& recording = **result;
  const Tables& tables = recording.tables();
  for (const Code& code : tables.codes) {
    DYNPROF_CHECK(code.filename < tables.strings.size() && code.name < tables.strings.size() &&
                  code.qualname < tables.strings.size() && code.line_table < tables.blobs.size());
  }
  for (const Frame& frame : tables.frames) {
    DYNPROF_CHECK(frame.code < tables.codes.size() && frame.symbol < tables.strings.size() &&
                  frame.object < tables.strings.size() &&
                  frame.source_file < tables.strings.size());
  }
  for (std::size_t id = 1; id < tables.stacks.size(); ++id) {
    DYNPROF_CHECK(tables.stacks[id].caller < id && tables.stacks[id].frame < tables.frames.size());
  }
  for (const Context& context : tables.contexts) {
    for (const Marker& marker : context.markers)
      DYNPROF_CHECK(marker.user_code < tables.codes.size());
  }
  for (const Thread& thread : tables.threads) DYNPROF_CHECK(thread.comm < tables.strings.size());
  const auto defined = [&](recording::Ref what, std::uint32_t id) {
    using recording::Ref;
    switch (what) {
      case Ref::kString:
      case Ref::kNeededString:
        return id < tables.strings.size();
      case Ref::kNeededBlob:
        return id < tables.blobs.size();
      case Ref::kCode:
        return id < tables.codes.size();
      case Ref::kNeededFrame:
      case Ref::kNeededNativeFrame:
        return id < tables.frames.size();
      case Ref::kStack:
        return id < tables.stacks.size();
      case Ref::kContext:
        return id < tables.contexts.size();
      case Ref::kNeededThread:
        return id < tables.threads.size();
    }
    return false;
  };
  const auto check = [&](recording::Ref what, std::uint32_t id) {
    DYNPROF_CHECK(defined(what, id));
  };
#define DYNPROF_CHECK_LIST(kind, number, name, Row, member, function) \
  recording::visit_refs(tables.member, check);
  DYNPROF_LISTS(DYNPROF_CHECK_LIST)
#undef DYNPROF_CHECK_LIST
  for (const GraphBreak& one : tables.graph_breaks)
    DYNPROF_CHECK(one.calls.size() <= kMaxBreakCalls);
  // A byte of each string and blob: views into freed memory are found by the sanitizer.
  volatile char sink = 0;
  for (std::string_view text : tables.strings) sink = text.empty() ? sink : text.back();
  for (std::string_view blob : tables.blobs) sink = blob.empty() ? sink : blob.back();

  std::uint64_t count = 0;
  std::vector<std::uint64_t> last(tables.threads.size());
  recording.for_each_sample([&](const Sample& sample) {
    DYNPROF_CHECK(sample.thread < tables.threads.size() && sample.stack < tables.stacks.size() &&
                  sample.context < tables.contexts.size());
    DYNPROF_CHECK(sample.time_ns >= last[sample.thread]);
    last[sample.thread] = sample.time_ns;
    ++count;
  });
  DYNPROF_CHECK(count == recording.sample_count());
  for (const std::string& sentence : recording.damage()) DYNPROF_CHECK(!sentence.empty());
  return 0;
}
