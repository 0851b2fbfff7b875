// dynprof-bpf: attaches to a live Python process that runs torch.compile and shows, per compile trace
// id, where the time goes.
#include <fmt/format.h>

#include <string>
#include <string_view>

#include "user/cli/commands.h"
#include "user/cli/options.h"
#include "user/cli/terminal.h"
#include "user/symbols/place_helper.h"
#include "user/symbols/place_reader.h"

namespace {

std::string shown_command(int argc, char** argv) {
  std::string text;
  for (int i = 0; i < argc; i++) text += (i ? " " : "") + std::string(argv[i]);
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace dynprof;
  if (argc == 2 && argv[1] == std::string_view(kPlaceHelperVerb)) return run_place_helper();
  PlaceReader::set_helper("/proc/self/exe");
  auto line = parse_command_line(argc, argv);
  if (!line) {
    print_error(line.error());
    return line.error().exit_code;
  }
  switch (line->verb) {
    case Verb::kRecord:
      return run_record(*line, shown_command(argc, argv));
    case Verb::kReport:
      return run_report(*line);
    case Verb::kExport:
      return run_export(*line);
    case Verb::kCompiles:
      return run_compiles(*line);
    case Verb::kDump:
      return run_dump(*line);
    case Verb::kDone:
      break;
  }
  return 0;
}
