// What `record` does after the last sample, on its own: makes all files of an output directory from a
// recording, and prints the report. No root needed, no target.
//
//   outputs RECORDING DIR [--svg]     DIR is made; prints when each part was done, on stderr
#include <fcntl.h>
#include <fmt/format.h>

#include <chrono>
#include <fstream>
#include <string>

#include "user/cli/outputs.h"
#include "user/cli/terminal.h"

namespace dynprof {
namespace {

Result<void> run(const std::string& recording, const std::string& folder, bool call_graphs) {
  ASSIGN_OR_RETURN(const OutputDirectory directory, OutputDirectory::create(folder));
  std::ofstream(folder + "/" + kRecordingName, std::ios::binary)
      << std::ifstream(recording, std::ios::binary).rdbuf();
  ASSIGN_OR_RETURN(UniqueFd file, directory.readable(kRecordingName));
  OutputOptions options;
  options.call_graphs = call_graphs;
  options.print_report = true;
  Terminal terminal(false);
  const auto began = std::chrono::steady_clock::now();
  TRY(write_outputs(directory, std::move(file), options, terminal));
  fmt::print(stderr, "{:.3f} s for all files\n",
             std::chrono::duration<double>(std::chrono::steady_clock::now() - began).count());
  return {};
}

}  // namespace
}  // namespace dynprof

int main(int argc, char** argv) {
  if (argc != 3 && argc != 4) {
    fmt::print(stderr, "usage: outputs RECORDING DIR [--svg]\n");
    return 2;
  }
  auto done = dynprof::run(argv[1], argv[2], argc == 4);
  if (done) return 0;
  dynprof::print_error(done.error());
  return 1;
}
