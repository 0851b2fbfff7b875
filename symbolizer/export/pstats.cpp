#include "symbolizer/export/pstats.h"

#include "symbolizer/export/marshal_writer.h"

namespace dynprof {
namespace {

class PstatsWriter {
 public:
  PstatsWriter(const Functions& functions, std::uint64_t period_ns)
      : functions_(functions), period_s_(static_cast<double>(period_ns) * 1e-9) {}

  std::string write(const Profile& profile) {
    out_.begin_dict();
    for (const ProfileEntry& entry : profile.entries) {
      key(entry.function);
      out_.begin_tuple(5);
      numbers(entry.leaf, entry.on_stack);
      out_.begin_dict();
      for (const CallerEntry& caller : entry.callers) {
        key(caller.caller);
        out_.begin_tuple(4);
        numbers(caller.leaf, caller.on_stack);
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
  void numbers(std::uint64_t leaf, std::uint64_t on_stack) {
    out_.integer(static_cast<std::int64_t>(leaf));
    out_.integer(static_cast<std::int64_t>(on_stack));
    out_.real(static_cast<double>(leaf) * period_s_);
    out_.real(static_cast<double>(on_stack) * period_s_);
  }

  const Functions& functions_;
  double period_s_;
  MarshalWriter out_;
};

}  // namespace

std::string pstats_bytes(const Profile& profile, const Functions& functions,
                         std::uint64_t period_ns) {
  return PstatsWriter(functions, period_ns).write(profile);
}

}  // namespace dynprof
