// One recording from attach to detach: loads the kernel side, follows the targets and their children,
// turns events into the recording, and leaves everything as it was.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>

#include "symbolizer/base/result.h"
#include "symbolizer/recording/writer.h"
#include "user/session/session_options.h"

namespace dynprof {

// What the progress line and the closing summary show.
struct SessionStatus {
  std::uint64_t elapsed_ns = 0;
  std::uint64_t samples = 0;
  std::uint64_t in_compile = 0;
  std::uint64_t lost = 0;
  std::uint64_t bytes = 0;
  std::size_t processes = 0;
};

// Callbacks of a session.
struct SessionHooks {
  std::function<bool()> stop_requested;
  // The recording then ends, while there is room for what is made from it.
  std::function<bool()> disk_is_nearly_full;
  std::function<void(const SessionStatus&)> progress;     // about four times a second
  std::function<void(const std::string& path)> naming;    // at the end: the file to be named
  std::function<void(const std::string& sentence)> note;  // each sentence once
};

class Session {
 public:
  // Checks the targets and loads the BPF programs; nothing is sampled yet.
  static Result<std::unique_ptr<Session>> prepare(const SessionOptions& options,
                                                  SessionHooks hooks);
  virtual ~Session() = default;

  // Facts for the recording's Meta: versions, period.
  virtual Meta meta() const = 0;
  // Attaches and returns; what the targets do is recorded from here on.
  virtual Result<void> attach() = 0;
  // Samples until a reason to stop; writes everything, symbols and trailer included. The recording
  // is whole unless an error comes back, and readable even then.
  virtual Result<SessionStatus> run(RecordingWriter& writer) = 0;
  virtual const Trailer& trailer() const = 0;
};

}  // namespace dynprof
