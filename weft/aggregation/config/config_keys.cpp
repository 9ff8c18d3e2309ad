#include "weft/aggregation/config/config_keys.h"

#include <algorithm>
#include <cctype>
#include <charconv>
#include <limits>

#include "weft/aggregation/config/job_name.h"

namespace weft::aggregation {
namespace {

constexpr std::int64_t kMost = std::numeric_limits<std::int32_t>::max();
constexpr std::int64_t kLargestPacket = 16192;  // limit of a 64 KiB datagram; an MTU allows less

template <class Number>
bool parse_number(const std::string& text, Number& value) {
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  return error == std::errc{} && end == text.data() + text.size();
}

// Pointer to a member of one of Config's sections.
template <class Section, class Value>
struct Place {
  Section Config::* section;
  Value Section::* member;

  Value& in(Config& config) const { return config.*section.*member; }
};
template <class Section, class Value>
Place(Section Config::*, Value Section::*) -> Place<Section, Value>;  // for compilers without CTAD for aggregates

template <class Section>
ConfigKey integer(const char* in, const char* name, Place<Section, std::int64_t> place, std::int64_t least,
                  std::int64_t most) {
  return {in, name, "a whole number from " + std::to_string(least) + " to " + std::to_string(most),
          [=](Config& config, const std::string& text) {
            std::int64_t value = 0;
            if (!parse_number(text, value) || value < least || value > most) return false;
            place.in(config) = value;
            return true;
          }};
}

template <class Section>
ConfigKey positive(const char* in, const char* name, Place<Section, double> place) {
  return {in, name, "a number above 0", [=](Config& config, const std::string& text) {
            double value = 0;
            if (!parse_number(text, value) || !(value > 0) || value > 1e9) return false;
            place.in(config) = value;
            return true;
          }};
}

template <class Section>
ConfigKey flag(const char* in, const char* name, Place<Section, bool> place) {
  return {in, name, "true or false", [=](Config& config, const std::string& text) {
            const bool yes = text == "true" || text == "1" || text == "yes" || text == "on";
            const bool no = text == "false" || text == "0" || text == "no" || text == "off";
            if (yes || no) place.in(config) = yes;
            return yes || no;
          }};
}

template <class Section>
ConfigKey words(const char* in, const char* name, Place<Section, std::string> place) {
  return {in, name, "text", [=](Config& config, const std::string& text) {
            place.in(config) = text;
            return true;
          }};
}

template <class Section>
ConfigKey one_of(const char* in, const char* name, Place<Section, std::string> place,
                 const std::vector<std::string>& choices) {
  std::string allowed;
  for (const std::string& choice : choices) allowed += (allowed.empty() ? "" : " | ") + choice;
  return {in, name, allowed, [=](Config& config, const std::string& text) {
            if (std::find(choices.begin(), choices.end(), text) == choices.end()) return false;
            place.in(config) = text;
            return true;
          }};
}

ConfigKey packet_numel() {
  return {"general", "packet_numel",
          "64 or 256, or with mode = extended any multiple of 64 up to " + std::to_string(kLargestPacket),
          [](Config& config, const std::string& text) {
            std::int64_t value = 0;
            if (!parse_number(text, value) || value < 64 || value > kLargestPacket || value % 64 != 0) return false;
            config.general.packet_numel = value;
            return true;
          }};
}

ConfigKey job_name() {
  return {"weft", "job", kJobNameRule, [](Config& config, const std::string& text) {
            if (!is_job_name(text)) return false;
            config.weft.job = text;
            return true;
          }};
}

void append_general(std::vector<ConfigKey>& keys) {
  using G = GeneralConfig;
  const auto at = [](auto G::* member) { return Place{&Config::general, member}; };
  keys.push_back(integer("general", "rank", at(&G::rank), 0, kMost));
  keys.push_back(integer("general", "num_workers", at(&G::num_workers), 1, 65535));
  keys.push_back(integer("general", "num_worker_threads", at(&G::num_worker_threads), 1, 1024));
  keys.push_back(integer("general", "max_outstanding_packets", at(&G::max_outstanding_packets), 1, 8192));
  keys.push_back(packet_numel());
  keys.push_back(one_of("general", "backend", at(&G::backend), {"dummy", "dpdk", "udp"}));
  keys.push_back(one_of("general", "scheduler", at(&G::scheduler), {"fifo"}));
  keys.push_back(one_of("general", "prepostprocessor", at(&G::prepostprocessor), {"cpu_exponent_quantizer", "bypass"}));
  keys.push_back(flag("general", "instant_job_completion", at(&G::instant_job_completion)));
  keys.push_back(words("general", "controller_ip", at(&G::controller_ip)));
  keys.push_back(integer("general", "controller_port", at(&G::controller_port), 1, 65535));
  keys.push_back(positive("general", "timeout", at(&G::timeout)));
  keys.push_back(integer("general", "timeout_threshold", at(&G::timeout_threshold), 0, kMost));
  keys.push_back(integer("general", "timeout_threshold_increment", at(&G::timeout_threshold_increment), 0, kMost));
}

void append_dpdk(std::vector<ConfigKey>& keys) {
  using D = DpdkConfig;
  const auto at = [](auto D::* member) { return Place{&Config::dpdk, member}; };
  keys.push_back(integer("backend.dpdk", "worker_port", at(&D::worker_port), 1, 65535));
  keys.push_back(words("backend.dpdk", "worker_ip", at(&D::worker_ip)));
  keys.push_back(words("backend.dpdk", "cores", at(&D::cores)));
  keys.push_back(words("backend.dpdk", "extra_eal_options", at(&D::extra_eal_options)));
  keys.push_back(integer("backend.dpdk", "port_id", at(&D::port_id), 0, 65535));
  keys.push_back(integer("backend.dpdk", "pool_size", at(&D::pool_size), 0, kMost));
  keys.push_back(integer("backend.dpdk", "pool_cache_size", at(&D::pool_cache_size), 0, 512));
  keys.push_back(integer("backend.dpdk", "burst_rx", at(&D::burst_rx), 1, 65535));
  keys.push_back(integer("backend.dpdk", "burst_tx", at(&D::burst_tx), 1, 65535));
  keys.push_back(integer("backend.dpdk", "bulk_drain_tx_us", at(&D::bulk_drain_tx_us), 0, kMost));
}

void append_weft(std::vector<ConfigKey>& keys) {
  using U = UdpConfig;
  using W = WeftConfig;
  const auto udp = [](auto U::* member) { return Place{&Config::udp, member}; };
  const auto weft = [](auto W::* member) { return Place{&Config::weft, member}; };
  keys.push_back(words("backend.udp", "worker_ip", udp(&U::worker_ip)));
  keys.push_back(integer("backend.udp", "worker_port", udp(&U::worker_port), 0, 65535));
  keys.push_back(flag("backend.udp", "segmentation_offload", udp(&U::segmentation_offload)));
  keys.push_back(flag("backend.udp", "shared_memory", udp(&U::shared_memory)));
  keys.push_back(job_name());
  keys.push_back(words("weft", "keys", weft(&W::keys)));
  keys.push_back(one_of("weft", "mode", weft(&W::mode), {"classic", "extended"}));
  keys.push_back(one_of("weft", "fallback", weft(&W::fallback), {"auto", "mpi", "gloo"}));
  keys.push_back(flag("weft", "exact", weft(&W::exact)));
  keys.push_back(integer("weft", "setup_timeout_s", weft(&W::setup_timeout_s), 1, 86400));
}

std::vector<ConfigKey> all_keys() {
  std::vector<ConfigKey> keys;
  append_general(keys);
  keys.push_back(positive("backend.dummy", "bandwidth", Place{&Config::dummy, &DummyConfig::bandwidth}));
  keys.push_back(flag("backend.dummy", "process_packets", Place{&Config::dummy, &DummyConfig::process_packets}));
  append_dpdk(keys);
  append_weft(keys);
  return keys;
}

}  // namespace

std::string ConfigKey::variable() const {
  const std::string prefix = "backend.";
  std::string text = section.starts_with(prefix) ? section.substr(prefix.size()) + "_" + name : name;
  for (char& letter : text) letter = static_cast<char>(std::toupper(static_cast<unsigned char>(letter)));
  return "WEFT_SML_" + text;
}

const std::vector<ConfigKey>& config_keys() {
  static const std::vector<ConfigKey> keys = all_keys();
  return keys;
}

std::vector<std::string> config_sections() {
  std::vector<std::string> sections;
  for (const ConfigKey& key : config_keys()) {
    if (std::find(sections.begin(), sections.end(), key.section) == sections.end()) sections.push_back(key.section);
  }
  return sections;
}

}  // namespace weft::aggregation
