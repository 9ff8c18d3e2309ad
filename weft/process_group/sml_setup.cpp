#include "weft/process_group/sml_setup.h"

#include <c10/util/Exception.h>

#include <functional>
#include <random>

namespace weft::process_group {
namespace {

using Bytes = std::vector<std::uint8_t>;

Bytes as_bytes(const std::string& text) { return {text.begin(), text.end()}; }
std::string as_text(const Bytes& bytes) { return {bytes.begin(), bytes.end()}; }

// Rank 0 often holds the store: if it left at once with an error, others could not hear of it any more.
void let_all_read(const Membership& members, const std::string& topic) {
  const std::string everybody = "sml/" + topic + "/heard";
  if (members.store->add("sml/" + topic + "/readers", 1) == members.size) members.store->set(everybody, as_bytes("1"));
  if (members.rank == 0) members.store->wait({everybody}, members.timeout);
}

// Tells all ranks what this one has to say, and hears all.
std::vector<std::string> exchange(const Membership& members, const std::string& topic, const std::string& mine) {
  const auto key = [&](int rank) { return "sml/" + topic + "/" + std::to_string(rank); };
  members.store->set(key(members.rank), as_bytes(mine));
  std::vector<std::string> all;
  for (int rank = 0; rank < members.size; ++rank) {
    members.store->wait({key(rank)}, members.timeout);
    all.push_back(as_text(members.store->get(key(rank))));
  }
  let_all_read(members, topic);
  return all;
}

// Does something that may fail here, and throws on every rank what failed on any.
template <class Result>
Result together(const Membership& members, const std::string& topic, const std::function<Result()>& act) {
  Result result{};
  std::string failure;
  try {
    result = act();
  } catch (const std::exception& error) {
    failure = error.what();
  }
  const auto failures = exchange(members, topic, failure);
  for (int rank = 0; rank < members.size; ++rank) {
    const std::string& text = failures[static_cast<std::size_t>(rank)];
    TORCH_CHECK_WITH(DistBackendError, text.empty(), "sml: rank ", rank, ": ", text);
  }
  return result;
}

void require_same(const Membership& members, const std::string& topic, const std::string& mine) {
  const auto parts = exchange(members, topic, mine);
  for (int rank = 1; rank < members.size; ++rank) {
    const std::string& theirs = parts[static_cast<std::size_t>(rank)];
    TORCH_CHECK_WITH(DistBackendError, theirs == parts[0], "sml: the ranks are configured differently: rank 0 has '",
                     parts[0], "', rank ", rank, " has '", theirs, "'; give all the same switchml.cfg and WEFT_SML_*");
  }
}

std::uint64_t picked_session() {
  std::random_device device;
  return (std::uint64_t{device()} << 32) | device();
}

// What must be the same everywhere: it decides which way a sum goes, and what packets look like. How a worker sends
// them (backend) is its own affair.
std::string shared_part(const aggregation::Config& config) {
  return config.general.prepostprocessor + " mode=" + config.weft.mode +
         " packet_numel=" + std::to_string(config.general.packet_numel) + " exact=" + (config.weft.exact ? "1" : "0") +
         " job=" + config.weft.job + " switch=" + config.general.controller_ip + ":" +
         std::to_string(config.general.controller_port);
}

}  // namespace

aggregation::Config agreed_config(const Membership& members) {
  const auto config = together<aggregation::Config>(members, "config", [] { return aggregation::load_config(); });
  require_same(members, "shared", shared_part(config));
  return config;
}

std::string agreed_fallback(const Membership& members, const std::string& usual) {
  const auto fallback = together<std::string>(members, "fallback", [&] {
    const std::string configured = aggregation::load_config().weft.fallback;
    return configured == "auto" ? usual : configured;
  });
  require_same(members, "same_fallback", "fallback=" + fallback);
  return fallback;
}

std::shared_ptr<Lane> open_lane(const Membership& members, const aggregation::Config& config) {
  const auto sessions =
      exchange(members, "session", members.rank == 0 ? std::to_string(picked_session()) : std::string());
  LinkOptions options;
  options.session = std::stoull(sessions[0]);
  options.rank = members.rank;
  options.workers = members.size;
  options.timeout = members.timeout;
  return together<std::shared_ptr<Lane>>(
      members, "joined", [&] { return std::make_shared<Lane>(std::make_unique<Link>(config, options)); });
}

}  // namespace weft::process_group
