#include "symbolizer/export/pstats.h"

#include "symbolizer/export/formats.h"
#include "symbolizer/export/marshal_writer.h"

namespace dynprof {
namespace {

class PstatsWriter {
 public:
  explicit PstatsWriter(const Functions& functions) : functions_(functions) {}

  std::string write(const Profile& profile) {
    out_.begin_dict();
    for (const ProfileEntry& entry : profile.entries) {
      key(entry.function);
      out_.begin_tuple(5);
      numbers(entry);
      out_.begin_dict();
      for (const CallerEntry& caller : entry.callers) {
        key(caller.caller);
        out_.begin_tuple(4);
        numbers(caller);
      }
      out_.end_dict();
    }
    out_.end_dict();
    return out_.take();
  }

 private:
  void key(FunctionId id) {
    const Function& function = functions_[id];
    out_.begin_tuple(3);
    out_.text(function.file);
    out_.integer(function.first_line);
    out_.text(function.name);
  }
  template <class Entry>
  void numbers(const Entry& entry) {
    out_.integer(static_cast<std::int64_t>(entry.leaf));
    out_.integer(static_cast<std::int64_t>(entry.on_stack));
    out_.real(static_cast<double>(entry.leaf_ns) * 1e-9);
    out_.real(static_cast<double>(entry.on_stack_ns) * 1e-9);
  }

  const Functions& functions_;
  MarshalWriter out_;
};

}  // namespace

std::string pstats_bytes(const Profile& profile, const Functions& functions) {
  return PstatsWriter(functions).write(profile);
}

Result<void> export_pstats(const ExportRequest& request) {
  const Analysis& analysis = request.analysis;
  const Profile profile =
      request.compiles.empty() ? analysis.session() : analysis.inside_compile(request.counts());
  return request.write(pstats_bytes(profile, analysis.functions()));
}

}  // namespace dynprof
