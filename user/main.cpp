// dynprof-bpf: attaches to a live Python process that runs torch.compile and shows, per compile trace
// id, where the time goes.
#include <malloc.h>

#include <exception>
#include <string>
#include <string_view>

#include "symbolizer/symbols/demangle.h"
#include "user/cli/commands.h"
#include "user/cli/options.h"
#include "user/cli/standard_streams.h"
#include "user/cli/terminal.h"
#include "user/symbols/long_names.h"
#include "user/symbols/place_helper.h"
#include "user/symbols/place_reader.h"

namespace {

std::string shown_command(int argc, char** argv) {
  std::string text;
  for (int i = 0; i < argc; i++) text += (i ? " " : "") + std::string(argv[i]);
  return text;
}

int run(int argc, char** argv) {
  using namespace dynprof;
  auto line = parse_command_line(argc, argv);
  if (!line) return fail(line.error());
  switch (line->verb) {
    case Verb::kRecord:
      return run_record(*line, shown_command(argc, argv));
    case Verb::kReport:
      return run_report(*line);
    case Verb::kExport:
      return run_export(*line);
    case Verb::kCompare:
      return run_compare(*line);
    case Verb::kCompiles:
      return run_compiles(*line);
    case Verb::kDump:
      return run_dump(*line);
    case Verb::kTop:
      return run_top(*line);
    case Verb::kDoctor:
      return run_doctor(*line);
    case Verb::kDone:
      break;
  }
  return 0;
}

}  // namespace

int main(int argc, char** argv) {
  using namespace dynprof;
  if (argc == 2 && argv[1] == std::string_view(kPlaceHelperVerb)) return run_place_helper();
  if (argc == 2 && argv[1] == std::string_view(kNameHelperVerb)) return run_name_helper();
  // Threads that read the target live for a moment. An arena of malloc's for each would keep what the largest one used.
  mallopt(M_ARENA_MAX, 1);
  prepare_standard_streams();
  PlaceReader::set_helper("/proc/self/exe");
  set_long_names(LongNames("/proc/self/exe"));
  // This program throws nothing, but libraries do when memory runs out: end with a status, not an abort.
  try {
    return run(argc, argv);
  } catch (const std::exception& failure) {
    print_error(error(std::string("cannot continue: ") + failure.what()));
    return 1;
  }
}
