// Fuzz target: input of the control plane. The first byte selects an HTTP request, a worker's terms or a switch's
// admission. Accepted terms and admissions must round-trip.
#include <cstdint>
#include <cstdlib>
#include <string>

#include "weft/control/http_request.h"
#include "weft/control/rpc/metadata.h"

namespace {

using namespace weft::control;

void require(bool holds) {
  if (!holds) std::abort();
}

void ask(const std::string& request) {
  static const Pages pages{{"/", {"text/html", [] { return std::string("page"); }}}};
  const std::string answer = answer_request(pages, request);
  require(answer.starts_with("HTTP/1.1 ") && answer.find("\r\n\r\n") != std::string::npos);
}

void read_terms(const std::string& text) {
  rpc::Terms terms;
  if (!terms.read(text)) return;
  require(terms.packet_elements >= 0 && terms.slots >= 0 && terms.port >= 0 && terms.port <= 65535);
  rpc::Terms again;
  require(again.read(terms.write()) && again.write() == terms.write());
}

void read_admission(const std::string& text) {
  weft::aggregation::Admission admission{};
  if (!rpc::read_admission(text, admission)) return;
  weft::aggregation::Admission again{};
  require(admission.slots > 0 && rpc::read_admission(rpc::write_admission(admission), again) && again == admission);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const std::uint8_t* data, std::size_t size) {
  if (size == 0) return 0;
  const std::string text(reinterpret_cast<const char*>(data + 1), size - 1);
  switch (data[0]) {
    case 'h':
      ask(text);
      break;
    case 't':
      read_terms(text);
      break;
    case 'a':
      read_admission(text);
      break;
  }
  return 0;
}
