#include "symbolizer/export/decompiler.h"

#include <fmt/format.h>
#include <sys/mman.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>

#include "symbolizer/base/text.h"
#include "symbolizer/base/unique_fd.h"
#include "symbolizer/python/pyc_magic.h"

namespace dynprof {
namespace {

enum Status { kDone = 0, kMissing = 3, kOtherVersion = 4, kCannot = 5 };

// depyf imports torch where it can, which takes seconds and which decompiling does not need.
constexpr const char* kProgram = R"py(
import ast, importlib.util, marshal, os, re, sys
sys.modules["torch"] = None
try:
    import depyf.decompiler as depyf
except ImportError:
    os._exit(3)

def literal(text):
    if text == "Ellipsis":
        return ...
    items = re.fullmatch(r"frozenset\((.*)\)", text, re.DOTALL)
    return frozenset(ast.literal_eval(items[1] or "()")) if items else ast.literal_eval(text)

# depyf 0.20 writes {"a": x} of this instruction as {a: x}.
def const_key_map(self, instruction):
    keys = literal(self.state.stack.pop())
    values = [self.state.stack.pop() for _ in range(instruction.argval)][::-1]
    pairs = ", ".join(f"{k!r}: {v}" for k, v in zip(keys, values))
    self.state.stack.append("{" + pairs + "}")
    self.replace_mutable_tos_with_temp()

depyf.eval = literal
depyf.Decompiler.BUILD_CONST_KEY_MAP = const_key_map
data = sys.stdin.buffer.read()
if data[:4] != importlib.util.MAGIC_NUMBER:
    os._exit(4)
try:
    text = depyf.Decompiler(marshal.loads(data[16:])).decompile()
    ast.parse(text)
except BaseException:
    os._exit(5)
sys.stdout.buffer.write(text.encode("utf-8", "backslashreplace"))
)py";

Result<std::string> text_of(int file, std::uint64_t most) {
  struct stat info {};
  if (::fstat(file, &info) != 0) return errno_error("cannot read what depyf wrote");
  std::string text(std::min<std::uint64_t>(static_cast<std::uint64_t>(info.st_size), most), '\0');
  const ssize_t got = ::pread(file, text.data(), text.size(), 0);
  if (got < 0) return errno_error("cannot read what depyf wrote");
  text.resize(static_cast<std::size_t>(got));
  return text;
}

}  // namespace

Result<std::string> find_decompiler(std::string_view pyc, const std::string& wanted,
                                    std::string_view path) {
  const auto python = python_of_pyc(pyc);
  if (!python) return error("no known CPython can load it");
  if (!wanted.empty()) return wanted;
  const std::string name = fmt::format("python{}.{}", python_major(*python), python_minor(*python));
  std::string found = find_program(path, name);
  if (!found.empty()) return found;
  return error(name + " not found in PATH");
}

Result<std::string> decompile(const std::string& python, std::string_view pyc,
                              const ProgramLimits& limits) {
  const std::string name = escape_terminal(base_name(python));
  const UniqueFd output(::memfd_create("dynprof-decompiled", MFD_CLOEXEC));
  if (!output) return errno_error("cannot hold a text in memory");
  // -I: neither the working directory nor the environment adds modules. -B: and it writes none.
  ASSIGN_OR_RETURN(const int status,
                   run_filter(python, {"-I", "-B", "-c", kProgram}, pyc, output.get(), limits));
  if (status == kMissing) return error(fmt::format("{} {}", name, kNoDepyf));
  if (status == kOtherVersion)
    return error(name + " is of another version than the target's CPython");
  if (status == kCannot) return error("depyf cannot decompile it");
  if (status != kDone) return error(fmt::format("{} failed with status {}", name, status));
  ASSIGN_OR_RETURN(std::string text, text_of(output.get(), limits.output_bytes));
  if (text.empty()) return error("depyf wrote nothing");
  return text;
}

}  // namespace dynprof
