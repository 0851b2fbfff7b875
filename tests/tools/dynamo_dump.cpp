// dynamo_dump RECORDING DIRECTORY: what Dynamo traced, of each compile of a recording, into files of a
// directory: STEM.dynamo.profile where it is known, and STEM.dynamo.txt, the lines of the report.
// With "-" for RECORDING it is an invented one: recursion, raised calls, nasty names.
#include <fmt/format.h>

#include <cstdio>
#include <memory>
#include <string>

#include "symbolizer/export/dynamo_pstats.h"
#include "symbolizer/report/dynamo_table.h"
#include "tests/unit/fake_tracing.h"

namespace dynprof {
namespace {

void invent(FakeRecording& fake) {
  FakeTracing tracing(fake, fake.thread(100, 100));
  CodeId step = fake.code("/home/me/train.py", "Model.step", 20);
  CodeId walk = fake.code("/home/me/train.py", "walk", 50);
  CodeId lambda = fake.code("/home/me/train.py", "Model.step.<locals>.<lambda>", 22);
  tracing.compile("0/0", 0, step);
  fake.pass_ms(2);
  for (int i = 0; i < 4; ++i) {
    tracing.enter(walk);
    fake.pass_ms(1);
  }
  tracing.call(lambda, 3);
  for (int i = 0; i < 4; ++i) tracing.leave();
  tracing.enter(lambda);
  tracing.call(walk, 1);
  tracing.raise();
  tracing.done();

  const std::string nasty[] = {"new\nline",
                               "a\x1b[31mred",
                               "../../etc/passwd",
                               "\"quo'ted\\",
                               std::string(10000, 'x'),
                               "\xed\xb2\x80surrogate",
                               "\xff\xfe not utf-8",
                               "semi;colon",
                               "",
                               "<html>&amp;",
                               "\xe2\x80\xaeoverride"};
  tracing.compile("1/0", 0, step);
  for (const std::string& name : nasty) {
    CodeId code = fake.code(Code{.filename = fake.string("/tmp/" + name + ".py"),
                                 .name = fake.string(name),
                                 .qualname = fake.string(name),
                                 .first_line = 7});
    tracing.enter(code);
    tracing.call(fake.code(Code{.unreadable = Unreadable::kStale}), 1);
    tracing.leave();
  }
  tracing.done();
}

bool write_file(const std::string& path, const std::string& bytes) {
  std::unique_ptr<std::FILE, int (*)(std::FILE*)> file(std::fopen(path.c_str(), "wb"),
                                                       &std::fclose);
  return file && std::fwrite(bytes.data(), 1, bytes.size(), file.get()) == bytes.size();
}

int dump(const Recording& recording, const std::string& directory) {
  Attribution attribution(recording);
  DynamoProfiles profiles(attribution);
  for (CompileIndex i = 0; i < attribution.compiles().size(); ++i) {
    std::string path = fmt::format("{}/{}.dynamo", directory, attribution.file_stem(i));
    std::string text;
    append_dynamo_table(text, attribution, profiles, i);
    bool written = write_file(path + ".txt", text);
    if (const DynamoProfile* profile = profiles.of(i)) {
      written = write_file(path + ".profile", dynamo_pstats_bytes(*profile)) && written;
    }
    if (!written) return 1;
  }
  fmt::print("{}\n", profiles.lost());
  return 0;
}

int run(int argc, char** argv) {
  if (argc != 3) {
    fmt::print(stderr, "usage: dynamo_dump RECORDING|- DIRECTORY\n");
    return 2;
  }
  if (std::string_view(argv[1]) == "-") {
    FakeRecording fake;
    invent(fake);
    return dump(fake, argv[2]);
  }
  auto recording = Recording::open(argv[1]);
  if (!recording) {
    fmt::print(stderr, "{}\n", recording.error().what);
    return 1;
  }
  return dump(**recording, argv[2]);
}

}  // namespace
}  // namespace dynprof

int main(int argc, char** argv) { return dynprof::run(argc, argv); }
