// For tests/compat/test_trace.py, from a made-up recording (training, hostile or empty):
//   fake_trace SCENARIO DIR             writes its timelines into DIR, which exists and is empty:
//     trace.json.gz  trace.json  compiles/<stem>.trace.json.gz  speedscope.json  perf.txt
//   fake_trace SCENARIO FORMAT PATH     as `dynprof-bpf export -f FORMAT -o PATH`
#include <sys/stat.h>

#include <cstdio>
#include <memory>
#include <string>
#include <vector>

#include "symbolizer/base/gzip.h"
#include "symbolizer/export/chrome.h"
#include "symbolizer/export/export.h"
#include "symbolizer/export/perf_script.h"
#include "symbolizer/export/speedscope.h"
#include "tests/unit/fake_training.h"

namespace dynprof {
namespace {

Result<void> write_all(const Recording& recording, const std::string& folder) {
  const Attribution attribution(recording);
  const Analysis analysis(attribution);
  if (::mkdir((folder + "/compiles").c_str(), 0700) != 0)
    return errno_error("cannot make compiles");
  std::vector<TraceTarget> targets;
  for (const char* name : {"/trace.json.gz", "/trace.json"}) {
    targets.push_back({{}, [path = folder + name] { return create_output(path); }});
  }
  for (CompileIndex i = 0; i < attribution.compiles().size(); ++i) {
    std::string path = folder + "/compiles/" + attribution.file_stem(i) + ".trace.json.gz";
    targets.push_back({{i}, [path] { return create_output(path); }});
  }
  TRY(write_chrome_traces(analysis, std::move(targets)));
  ASSIGN_OR_RETURN(auto speedscope, create_output(folder + "/speedscope.json"));
  TRY(write_speedscope(analysis, {}, *speedscope));
  ASSIGN_OR_RETURN(auto perf, create_output(folder + "/perf.txt"));
  return write_perf_script(analysis, {}, *perf);
}

int run(int argc, char** argv) {
  const std::string scenario = argv[1];
  std::unique_ptr<FakeRecording> recording;
  if (scenario == "training") {
    auto training = std::make_unique<FakeTraining>();
    training->whole_run();
    recording = std::move(training);
  } else if (scenario == "hostile") {
    recording = std::make_unique<HostileRecording>();
  } else if (scenario == "empty") {
    recording = std::make_unique<FakeRecording>();
  } else {
    std::fprintf(stderr, "no scenario %s\n", scenario.c_str());
    return 2;
  }
  const Attribution attribution(*recording);
  auto done = argc == 3 ? write_all(*recording, argv[2])
                        : export_recording(Analysis(attribution), argv[2], {argv[3]});
  if (done) return 0;
  std::fprintf(stderr, "%s\n", done.error().what.c_str());
  return done.error().exit_code;
}

}  // namespace
}  // namespace dynprof

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) {
    std::fprintf(stderr, "usage: fake_trace training|hostile|empty DIR, or ... FORMAT PATH\n");
    return 2;
  }
  return dynprof::run(argc, argv);
}
