#include "user/generated/write_generated.h"

#include <map>

#include "symbolizer/base/file_output.h"
#include "symbolizer/base/text.h"
#include "user/generated/names.h"

namespace dynprof {
namespace {

constexpr const char* kFolder = "generated";

Result<void> write_file(const OutputDirectory& directory, const std::string& name,
                        const std::string& content) {
  ASSIGN_OR_RETURN(auto file, directory.file(name));
  file->write(content);
  return file->finish();
}

}  // namespace

Result<std::vector<WrittenFile>> write_generated(const OutputDirectory& directory,
                                                 const std::vector<GeneratedFile>& files) {
  std::vector<WrittenFile> written;
  std::map<std::string, OutputDirectory> folders;
  std::optional<OutputDirectory> top;
  for (const GeneratedFile& file : files) {
    if (file.content.empty()) continue;
    if (!top) {
      ASSIGN_OR_RETURN(top, directory.subdirectory(kFolder));
    }
    // Names come safe from FileNames; a file that was made elsewhere is held to the same.
    std::string folder = trace_id_directory(file.trace_id);
    std::string name = sanitize_file_component(file.name);
    auto place = folders.find(folder);
    if (place == folders.end()) {
      ASSIGN_OR_RETURN(OutputDirectory made, top->subdirectory(folder));
      place = folders.emplace(folder, std::move(made)).first;
    }
    TRY(write_file(place->second, name, file.content));
    WrittenFile entry;
    entry.path = std::string(kFolder) + "/" + folder + "/" + name;
    entry.trace_id = file.trace_id;
    entry.kind = kind_name(file.kind);
    entry.direction = direction_name(file.direction);
    entry.origin = file.origin;
    entry.problem = file.problem;
    entry.truncated = file.truncated;
    written.push_back(std::move(entry));
  }
  return written;
}

}  // namespace dynprof
