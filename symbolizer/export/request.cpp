#include "symbolizer/export/request.h"

#include <fcntl.h>
#include <unistd.h>

#include <utility>

#include "symbolizer/base/gzip.h"
#include "symbolizer/base/unique_fd.h"

namespace dynprof {

Result<std::unique_ptr<ByteSink>> open_target(const ExportTarget& target) {
  const bool to_stdout = target.path == "-";
  if (!to_stdout && target.fd < 0) return create_output(target.path);
  const std::string shown = to_stdout ? "stdout" : target.path;
  UniqueFd out(::fcntl(to_stdout ? STDOUT_FILENO : target.fd, F_DUPFD_CLOEXEC, 0));
  if (!out) return errno_error("cannot write to " + shown);
  std::unique_ptr<ByteSink> file = OutputFile::adopt(std::move(out), shown, !to_stdout);
  if (to_stdout || !shown.ends_with(".gz")) return file;
  return make_gzip_sink(std::move(file));
}

Result<void> ExportRequest::write(std::string_view text) const {
  ASSIGN_OR_RETURN(std::unique_ptr<ByteSink> sink, open());
  sink->write(text);
  return sink->finish();
}

std::vector<StackCount> ExportRequest::counts() const {
  std::vector<StackCount> counts;
  if (compiles.empty()) {
    const auto all = analysis.counts().all();
    return {all.begin(), all.end()};
  }
  for (CompileIndex compile : compiles) {
    auto more = analysis.wall_counts(compile);
    counts.insert(counts.end(), more.begin(), more.end());
  }
  return counts;
}

}  // namespace dynprof
