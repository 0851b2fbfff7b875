// How fast a recording is written, read back and attributed, and how large it is; no root needed.
//
//   recording                       measures, prints a markdown table
//   recording --write PATH SAMPLES  only writes a recording (bench_export.py exports it)
//
// The recording is made up, in the measure of a torch.compile session: ~1,500 code objects with
// 100-entry line tables, 3,000 distinct stacks of 60-75 Python frames, a stack that changes about
// every second sample, and a compile open two thirds of the time.
#include <fcntl.h>
#include <unistd.h>

#include <chrono>
#include <cstdint>
#include <cstdlib>
#include <random>
#include <string>
#include <vector>

#include "fmt/format.h"
#include "symbolizer/attribution/attribution.h"
#include "symbolizer/recording/reader.h"
#include "symbolizer/recording/writer.h"

namespace dynprof {
namespace {

constexpr std::uint64_t kPeriod = 1'001'001;  // 999 Hz
constexpr std::uint64_t kStart = 1'000'000'000;
constexpr int kCodes = 1500;
constexpr int kStacks = 3000;
constexpr int kCompiles = 24;

// A 3.11 location table: entries of eight code units, each one line further, without columns.
std::string line_table() {
  std::string table;
  for (int i = 0; i < 100; ++i) {
    table += static_cast<char>(0x80 | (13 << 3) | 7);
    table += static_cast<char>(2);  // signed varint: +1
  }
  return table;
}

class Session {
 public:
  Session(RecordingWriter& writer, std::uint64_t samples) : out_(writer) {
    Process process;
    process.pid = 4242;
    process.comm = out_.string("python3");
    process.command_line = out_.string("python3 train.py");
    process.python = out_.string("3.11.7");
    process.torch = out_.string("2.13.0+cpu");
    out_.process(process);
    thread_ = out_.thread({4242, 4242, out_.string("python3")});
    make_frames();
    make_stacks();
    make_contexts();
    write_samples(samples);
  }

 private:
  void make_frames() {
    const BlobId table = out_.blob(line_table());
    for (int i = 0; i < kCodes; ++i) {
      Code code;
      code.filename =
          out_.string(fmt::format("/site-packages/torch/_inductor/module_{}.py", i / 20));
      code.name = out_.string(fmt::format("function_{}", i));
      code.qualname = out_.string(fmt::format("Class_{}.function_{}", i / 5, i));
      code.first_line = 10 + 40 * (i % 20);
      code.line_table = table;
      code.python = (3 << 8) | 11;
      codes_.push_back(out_.code(code));
    }
    Code compile;
    compile.filename = out_.string("/site-packages/torch/_dynamo/convert_frame.py");
    compile.name = compile.qualname = out_.string("_compile");
    compile.first_line = 1633;
    compile.line_table = table;
    compile.python = (3 << 8) | 11;
    marker_ = frame_of(out_.code(compile), 40);
  }

  FrameId frame_of(CodeId code, std::int32_t unit) {
    Frame frame;
    frame.code = code;
    frame.unit = unit;
    return out_.frame(frame);
  }

  FrameId any_frame(std::uint32_t codes) {
    return frame_of(codes_[random_() % codes], static_cast<std::int32_t>(random_() % 16) * 40);
  }

  // A common path of 30 frames, and below it branches that share more the nearer they are.
  void make_stacks() {
    StackId stack = 0;
    for (int i = 0; i < kDepthOfMarker; ++i) stack = out_.stack({stack, any_frame(kCodes)});
    running_ = stack;
    stack = out_.stack({stack, marker_});
    for (int i = 0; i < 12; ++i) stack = out_.stack({stack, any_frame(kCodes)});
    std::vector<StackId> path;
    for (int i = 0; i < kStacks; ++i) {
      const std::size_t keep = path.empty() ? 0 : random_() % path.size();
      path.resize(keep);
      const std::size_t depth = 30 + random_() % 16;
      while (path.size() < depth) {
        path.push_back(out_.stack({path.empty() ? stack : path.back(), any_frame(kCodes)}));
      }
      stacks_.push_back(path.back());
    }
  }

  void make_contexts() {
    for (int i = 0; i < kCompiles; ++i) {
      Marker marker;
      marker.kind = MarkerKind::kCompile;
      marker.frame_id = i / 2;
      marker.compile_id = i % 2;
      marker.depth = kDepthOfMarker;
      marker.instance = 0x7f0000001000 + static_cast<std::uint64_t>(i) * 64;
      marker.user_code = codes_[static_cast<std::size_t>(i)];
      contexts_.push_back(out_.context({{marker}}));
    }
  }

  void write_samples(std::uint64_t count) {
    Sample sample;
    sample.thread = thread_;
    const std::uint64_t stretch = count / (kCompiles * 3) + 1;  // run time, compile, compile, ...
    for (std::uint64_t i = 0; i < count; ++i) {
      const std::uint64_t part = i / stretch;
      sample.time_ns = kStart + (i + 1) * kPeriod + random_() % 40'000;  // a timer's jitter
      if (part % 3 == 0) {
        sample.stack = running_;
        sample.context = 0;
      } else {
        sample.context = contexts_[part / 3];
        if (i % stretch == 0 || random_() % 2 == 0) {
          // Mostly near where it was, as a program moves through its phases.
          const std::uint64_t near = i * kStacks / count;
          sample.stack = stacks_[(near + random_() % 200) % kStacks];
        }
      }
      out_.sample(sample);
      if (i % 1000 == 0) static_cast<void>(out_.flush());  // once a second, as the collector does
    }
  }

  static constexpr int kDepthOfMarker = 17;
  RecordingWriter& out_;
  std::mt19937 random_{1};  // fixed seed: the same recording every time
  ThreadId thread_ = 0;
  FrameId marker_ = 0;
  StackId running_ = 0;
  std::vector<CodeId> codes_;
  std::vector<StackId> stacks_;
  std::vector<ContextId> contexts_;
};

Result<std::uint64_t> write_recording(const std::string& path, std::uint64_t samples) {
  UniqueFd file(::open(path.c_str(), O_CREAT | O_EXCL | O_WRONLY | O_CLOEXEC, 0600));
  if (!file) return errno_error(path);
  Meta meta;
  meta.target_pid = 4242;
  meta.frequency_hz = 999;
  meta.period_ns = kPeriod;
  meta.start_ns = kStart;
  meta.event = "cpu-clock";
  meta.command = "python3 train.py";
  meta.python = "3.11.7";
  meta.torch = "2.13.0+cpu";
  ASSIGN_OR_RETURN(auto writer, RecordingWriter::create(std::move(file), meta));
  Session session(*writer, samples);
  Trailer trailer;
  trailer.end_ns = kStart + (samples + 1) * kPeriod;
  trailer.reason = "duration";
  trailer.counters["samples"] = samples;
  TRY(writer->finish(trailer));
  return writer->size();
}

class Stopwatch {
 public:
  double seconds() const {
    return std::chrono::duration<double>(std::chrono::steady_clock::now() - began_).count();
  }

 private:
  std::chrono::steady_clock::time_point began_ = std::chrono::steady_clock::now();
};

void row(const char* what, double per_second) {
  fmt::print("| {} | {:.2f} M samples/s |\n", what, per_second / 1e6);
}

Result<void> measure(const std::string& path, std::uint64_t samples) {
  const auto count = static_cast<double>(samples);
  Stopwatch writing;
  ASSIGN_OR_RETURN(const std::uint64_t bytes, write_recording(path, samples));
  fmt::print("| {} samples, made up | |\n|---|---|\n", samples);
  row("written (with interning and compression)", count / writing.seconds());
  fmt::print("| size | {:.1f} bytes/sample |\n", static_cast<double>(bytes) / count);

  Stopwatch opening;
  ASSIGN_OR_RETURN(auto recording, Recording::open(path));
  fmt::print("| opened, tables read | {:.3f} s |\n", opening.seconds());
  std::uint64_t sum = 0;
  Stopwatch reading;
  recording->for_each_sample([&](const Sample& sample) { sum += sample.stack; });
  row("samples read", count / reading.seconds());
  Stopwatch attributing;
  const Attribution attribution(*recording);
  attribution.for_each([&](const AttributedSample& sample) { sum += sample.compile; });
  row("read and attributed", count / attributing.seconds());
  if (sum == 0 || recording->sample_count() != samples) return error("the samples are not there");
  return {};
}

int report(const Result<void>& result) {
  if (result) return 0;
  fmt::print(stderr, "error: {}\n", result.error().what);
  return 1;
}

}  // namespace
}  // namespace dynprof

int main(int argc, char** argv) {
  using namespace dynprof;
  if (argc == 4 && std::string(argv[1]) == "--write") {
    auto written = write_recording(argv[2], std::strtoull(argv[3], nullptr, 10));
    return report(written ? Result<void>() : Result<void>(written.error()));
  }
  if (argc != 1) {
    fmt::print(stderr, "usage: recording [--write PATH SAMPLES]\n");
    return 2;
  }
  std::string directory = "/tmp/dynprof-bench-XXXXXX";
  if (::mkdtemp(directory.data()) == nullptr) return report(errno_error(directory));
  const std::string path = directory + "/recording.dynprof";
  const int status = report(measure(path, 1'000'000));
  ::unlink(path.c_str());
  ::rmdir(directory.c_str());
  return status;
}
