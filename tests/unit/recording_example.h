// A small recording with everything in it, and what a recording says as plain values: for tests
// that damage the bytes and compare.
#pragma once

#include <fcntl.h>
#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <map>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "symbolizer/python/python_version.h"
#include "symbolizer/recording/open_fd.h"
#include "symbolizer/recording/reader.h"
#include "symbolizer/recording/writer.h"

namespace dynprof {

inline UniqueFd memory_file(std::string_view bytes = {}) {
  UniqueFd file(::memfd_create("recording", MFD_CLOEXEC));
  DYNPROF_CHECK(file.valid());
  while (!bytes.empty()) {
    ssize_t written = ::write(file.get(), bytes.data(), bytes.size());
    DYNPROF_CHECK(written > 0);
    bytes.remove_prefix(static_cast<std::size_t>(written));
  }
  return file;
}

inline std::string file_bytes(int fd) {
  struct stat info {};
  DYNPROF_CHECK(::fstat(fd, &info) == 0);
  std::string bytes(static_cast<std::size_t>(info.st_size), '\0');
  DYNPROF_CHECK(::pread(fd, bytes.data(), bytes.size(), 0) == info.st_size);
  return bytes;
}

inline Meta example_meta() {
  Meta meta;
  meta.target_pid = 4242;
  meta.frequency_hz = 999;
  meta.period_ns = 1'001'001;
  meta.start_ns = 5'000'000'000;
  meta.realtime_offset_ns = -17;
  meta.event = "cpu-clock";
  meta.host = "host \"quoted\"";
  meta.kernel = "6.1.0";
  meta.command = "python3 train.py --name=\xc3\xa4";
  meta.python = "3.11.7";
  meta.torch = "2.13.0+cpu";
  meta.version = "0.1.0";
  return meta;
}

// Three rounds, each flushed, of new entries in every table and a few samples.
inline void write_example(RecordingWriter& writer) {
  std::uint64_t time = 5'000'000'000;
  for (int round = 0; round < 3; ++round) {
    StringId file = writer.string(fmt::format("/home/user/model_{}.py", round));
    StringId name = writer.string(fmt::format("forward_{}", round));
    StringId qualname = writer.string(fmt::format("Model{}.forward", round));
    BlobId lines = writer.blob(std::string(40, static_cast<char>('\x80' + round)));
    CodeId code = writer.code(
        {file, name, qualname, 17 + round, lines, python_version(3, 11), Unreadable::kNo});
    CodeId stale = writer.code({.first_line = round, .unreadable = Unreadable::kStale});
    StackId stack = 0;
    for (int depth = 0; depth < 4; ++depth) {
      Frame frame{.entry = depth == 0, .code = depth == 3 ? stale : code, .unit = depth * 3 - 1};
      stack = writer.stack({stack, writer.frame(frame)});
    }
    Frame native{.kind = FrameKind::kNative,
                 .symbol = writer.string(fmt::format("memcpy_{}", round)),
                 .object = writer.string("/usr/lib/libc.so.6"),
                 .offset = 0x1234567890abcdefu + static_cast<unsigned>(round)};
    StackId leaf = writer.stack({stack, writer.frame(native)});
    // Only a line for the frame that samples have: what is lost of it changes no stack.
    StringId source = writer.string("/home/user/work.cpp");
    writer.source_places({writer.frame(native), {{0, source, 12, 10}}});
    native.offset += 100;
    writer.source_places({writer.frame(native), {{name, source, 7, 5}, {0, source, 12, 10}}});
    Frame kernel{.kind = FrameKind::kKernel,
                 .symbol = writer.string("do_idle"),
                 .object = writer.string("[kernel]")};
    StackId idle = writer.stack({0, writer.frame(kernel)});
    Marker compile{.frame_id = round,
                   .compile_id = 0,
                   .depth = 7,
                   .instance = 0x7f0000001000u,
                   .user_code = code};
    Marker attempt{.kind = MarkerKind::kAttempt,
                   .readable = false,
                   .attempt = round,
                   .depth = 9,
                   .instance = 0x7f0000000800u};
    ContextId context = writer.context({{compile, attempt}});
    writer.process({.pid = 4242 + round,
                    .parent_pid = round == 0 ? 0 : 4242,
                    .comm = writer.string("python3"),
                    .exe = writer.string("/usr/bin/python3"),
                    .command_line = writer.string(fmt::format("python3 worker {}", round)),
                    .python = writer.string("3.11.7"),
                    .torch = writer.string("2.13.0"),
                    .start_ns = time});
    ThreadId main = writer.thread({4242, 4242 + round, writer.string("python3")});
    ThreadId other = writer.thread({4242, 5000 + round, writer.string("worker")});
    for (unsigned i = 0; i < 3; ++i) {
      writer.sample({time, main, leaf, context, 0});
      writer.sample({time + 300, other, i == 1 ? idle : stack, 0,
                     i == 1 ? kSampleNoPython : std::uint8_t{0}});
      time += 1'001'000 + i;
    }
    writer.gpu_launch({.time_ns = time,
                       .thread = main,
                       .correlation = 70u + static_cast<unsigned>(round),
                       .call = DYNPROF_GPU_CALL(DYNPROF_GPU_RUNTIME, 211),
                       .stack = stack,
                       .context = context,
                       .flags = kGpuCallNested});
    GpuRecord kernel_record{.pid = 4242};
    kernel_record.record.kind = DYNPROF_GPU_KERNEL;
    kernel_record.record.correlation = 70u + static_cast<unsigned>(round);
    kernel_record.record.start_ns = time + 100;
    kernel_record.record.end_ns = time + 900;
    kernel_record.record.name = name;
    kernel_record.record.kernel.grid[0] = 8;
    writer.gpu_record(kernel_record);
    writer.process_life({.time_ns = time + 20,
                         .pid = 4300 + round,
                         .kind = LifeKind::kFork,
                         .parent_pid = 4242,
                         .parent_tid = 5000 + round,
                         .comm = writer.string("python3")});
    writer.process_life({.time_ns = time + 30,
                         .pid = 4300 + round,
                         .kind = LifeKind::kExec,
                         .comm = writer.string("g++"),
                         .exe = writer.string("/usr/bin/g++"),
                         .command_line = writer.string(std::string_view("g++\0-c\0main.cpp", 15)),
                         .command_bytes = 5000,
                         .cpu_ns = 1'000'000});
    writer.process_life({.time_ns = time + 40,
                         .pid = 4300 + round,
                         .kind = LifeKind::kExit,
                         .comm = writer.string("g++"),
                         .cpu_ns = 77'000'000,
                         .exit_code = round == 2 ? 9 : 256});
    writer.edge({.time_ns = time, .thread = main, .name = name, .depth = 1, .context = context});
    writer.graph_break({.time_ns = time,
                        .thread = main,
                        .context = context,
                        .reason = writer.string("print"),
                        .calls = {{file, 3, name}, {file, 9, qualname}}});
    writer.line_sample({.time_ns = time,
                        .weight_ns = 50'000'000,
                        .thread = main,
                        .context = context,
                        .use = LineUse::kLowering,
                        .line = {file, 7u + static_cast<unsigned>(round), name}});
    writer.module_sample({.time_ns = time,
                          .weight_ns = 50'000'000,
                          .thread = main,
                          .context = context,
                          .use = LineUse::kLowering,
                          .module = writer.string("L['self'].blocks.0")});
    writer.compile_progress({.time_ns = time,
                             .begun_ns = time - 1'000'000'000,
                             .thread = main,
                             .context = context,
                             .use = LineUse::kLowering,
                             .line = {file, 7u + static_cast<unsigned>(round), name},
                             .node = 5,
                             .nodes = 70});
    writer.memory_sample({.time_ns = time + 40, .pid = 4242, .bytes = 88 << 20});
    writer.annotation({.begin_ns = time - 700,
                       .end_ns = time,
                       .thread = main,
                       .kind = AnnotationKind::kNvtx,
                       .end_seen = round != 1,
                       .name = writer.string("warmup")});
    writer.memory_peak({.time_ns = time + 40, .pid = 4300 + round, .bytes = 77 << 20});
    writer.triton_sample({.time_ns = time,
                          .thread = other,
                          .compilation = static_cast<unsigned>(round),
                          .kernel = writer.string("add_kernel")});
    writer.lock_sample({.time_ns = time, .weight_ns = 1, .thread = other, .holder_tid = 4242});
    writer.region_runs(
        {.begin_ns = time, .end_ns = time + 50, .pid = 4242, .then = RunsThen::kNotCounted});
    writer.region_runs({.begin_ns = time,
                        .end_ns = time + 50,
                        .pid = 4242,
                        .name = name,
                        .code = 0,
                        .calls = 7,
                        .timed = 6,
                        .time_ns = 5000,
                        .nested_ns = 400,
                        .lookups = 3,
                        .lookup_ns = 2000});
    writer.object_file({.object = file,
                        .build_id = writer.string("0badcafe"),
                        .segments = {{0, 4096, 0}, {4096, 777, 8192}}});
    DYNPROF_CHECK(writer.flush().has_value());
  }
}

inline Trailer example_trailer() {
  return {.end_ns = 6'000'000'000,
          .reason = "interrupted",
          .counters = {{"samples", 18}, {"ring_full", 3}}};
}

inline std::string example_bytes() {
  UniqueFd file = memory_file();
  UniqueFd copy(::dup(file.get()));
  auto writer = RecordingWriter::create(std::move(file), example_meta());
  DYNPROF_CHECK(writer.has_value());
  write_example(**writer);
  DYNPROF_CHECK((*writer)->finish(example_trailer()).has_value());
  return file_bytes(copy.get());
}

inline Result<std::unique_ptr<Recording>> read_bytes(std::string_view bytes) {
  return recording::open_fd(memory_file(bytes), "test.dynprof");
}

inline std::vector<Sample> samples_of(const Recording& recording) {
  std::vector<Sample> samples;
  recording.for_each_sample([&](const Sample& sample) { samples.push_back(sample); });
  return samples;
}

inline std::string frame_text(const Tables& tables, const Frame& frame) {
  if (frame.kind != FrameKind::kPython) {
    return fmt::format("{}@{}+{:x}", tables.strings.at(frame.symbol),
                       tables.strings.at(frame.object), frame.offset);
  }
  const Code& code = tables.codes.at(frame.code);
  std::string_view name = tables.strings.at(code.qualname);
  if (code.unreadable != Unreadable::kNo) name = unreadable_text(code.unreadable);
  std::string_view lines = tables.blobs.at(code.line_table);
  std::string lines_text = "no lines";
  if (!lines.empty()) {
    lines_text = fmt::format("{} x {:x}", lines.size(), static_cast<unsigned char>(lines[0]));
  } else if (code.unreadable == Unreadable::kNo) {
    lines_text = "<lost>";  // every readable code object of the example has a line table
  }
  return fmt::format("{}:{}:{}:{}:{}:{}", tables.strings.at(code.filename), name, code.first_line,
                     frame.unit, frame.entry, lines_text);
}

// Everything a sample says, ids resolved. "<lost>" in it where a part is lost.
inline std::string sample_text(const Tables& tables, const Sample& sample) {
  const Thread& thread = tables.threads.at(sample.thread);
  std::string text = fmt::format("{} {}/{} {} flags {}", sample.time_ns, thread.pid, thread.tid,
                                 tables.strings.at(thread.comm), sample.flags);
  for (StackId id = sample.stack; id != 0; id = tables.stacks.at(id).caller) {
    text += " < " + frame_text(tables, tables.frames.at(tables.stacks.at(id).frame));
  }
  for (const Marker& m : tables.contexts.at(sample.context).markers) {
    bool lost = !m.readable && m.instance == 0;
    text += fmt::format(
        " | {}{} {} {} {} {} {} {:x} {}", lost ? "<lost>" : "", static_cast<int>(m.kind),
        m.readable, m.autograd_id, m.frame_id, m.compile_id, m.attempt, m.instance,
        m.user_code == 0 ? "" : tables.strings.at(tables.codes.at(m.user_code).name));
  }
  return text;
}

inline std::vector<std::string> texts_of(const Recording& recording) {
  std::vector<std::string> texts;
  recording.for_each_sample(
      [&](const Sample& sample) { texts.push_back(sample_text(recording.tables(), sample)); });
  return texts;
}

}  // namespace dynprof
