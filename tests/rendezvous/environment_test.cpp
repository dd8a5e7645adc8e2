// SPDX-License-Identifier: Apache-2.0 WITH LLVM-exception
// What the variables of launchers say about a process, and the errors of variables that are missing or malformed.
#include <spar/rendezvous/environment.hpp>

#include "rendezvous/processes.hpp"

#include <gtest/gtest.h>

#include <string>
#include <utility>
#include <vector>

namespace {

using variables = std::vector<std::pair<std::string, std::string>>;

spar::detail::place_in_job place_of(const variables& set, const spar::rendezvous_options& options = {}) {
  const test::environment environment(set);
  return spar::detail::place_from_environment(options);
}

std::string error_of(const variables& set) {
  return test::message_of<spar::invalid_argument>([&] { (void)place_of(set); });
}

/// `set` with further variables.
variables with(variables set, const variables& more) {
  set.insert(set.end(), more.begin(), more.end());
  return set;
}

const variables torchrun{{"RANK", "2"},
                         {"WORLD_SIZE", "8"},
                         {"LOCAL_WORLD_SIZE", "4"},
                         {"MASTER_ADDR", "node7"},
                         {"MASTER_PORT", "29500"},
                         {"TORCHELASTIC_RUN_ID", "run"}};
const variables openmpi{{"OMPI_COMM_WORLD_RANK", "1"},
                        {"OMPI_COMM_WORLD_SIZE", "4"},
                        {"OMPI_COMM_WORLD_LOCAL_SIZE", "4"},
                        {"PMIX_NAMESPACE", "1123483649"}};
const variables hydra{{"PMI_RANK", "3"}, {"PMI_SIZE", "4"}, {"MPI_LOCALNRANKS", "2"}};
const variables slurm{{"SLURM_PROCID", "5"},
                      {"SLURM_NTASKS", "16"},
                      {"SLURM_STEP_NUM_TASKS", "8"},
                      {"SLURM_STEP_NUM_NODES", "2"},
                      {"SLURM_JOB_NODELIST", "login,node[04-09]"},
                      {"SLURM_STEP_NODELIST", "node[05-06,09]"},
                      {"SLURM_JOB_ID", "77"},
                      {"SLURM_STEP_ID", "3"}};

TEST(environment, of_a_process_that_joins_a_job) {
  const auto job_of = [](const variables& set, const spar::rendezvous_options& options = {}) {
    const test::environment environment(set);
    return spar::detail::job_to_join(options);
  };
  const auto job =
      job_of({{"MASTER_ADDR", "node7"}, {"MASTER_PORT", "29500"}, {"SPAR_JOB", "j"}, {"SPAR_SECRET", "s"}});
  EXPECT_EQ(job.address, "node7"); // no variable names a rank
  EXPECT_EQ(job.port, 29601);
  EXPECT_EQ(job.job, "j");
  EXPECT_EQ(job.secret, "s");
  EXPECT_EQ(job_of({{"SPAR_ADDR", "a"}, {"SPAR_JOB", "j"}}).port,
            place_of(with(slurm, {{"SPAR_JOB", "j"}})).where.port); // as for the ranks
  EXPECT_EQ(job_of({}, {.address = "a", .port = 1}).port, 1);

  const auto error_to_join = [&](const variables& set) {
    return test::message_of<spar::invalid_argument>([&] { (void)job_of(set); });
  };
  EXPECT_EQ(error_to_join({{"SPAR_PORT", "7"}}),
            "the environment does not say where the job to join meets; expected the variable SPAR_ADDR or MASTER_ADDR "
            "with the host of its rank 0");
  EXPECT_NE(error_to_join({{"SPAR_ADDR", "a"}}).find("does not say on which port rank 0 listens"), std::string::npos);
  EXPECT_NE(error_to_join({{"SPAR_ADDR", "a"}, {"SPAR_PORT", "x"}}).find("SPAR_PORT is \"x\""), std::string::npos);
}

TEST(environment, of_torchrun) {
  const auto place = place_of(torchrun);
  EXPECT_EQ(place.rank, 2);
  EXPECT_EQ(place.size, 8);
  EXPECT_EQ(place.where.address, "node7");
  EXPECT_EQ(place.where.port, 29601); // not torchrun's own
  EXPECT_EQ(place.where.job, "run");
  EXPECT_EQ(place.where.secret, "");
  EXPECT_EQ(place_of(with(torchrun, {{"MASTER_PORT", "65500"}})).where.port, 65399);
}

TEST(environment, of_open_mpi) {
  const auto place = place_of(openmpi);
  EXPECT_EQ(place.rank, 1);
  EXPECT_EQ(place.size, 4);
  EXPECT_EQ(place.where.address, "127.0.0.1"); // all ranks are on this host
  EXPECT_EQ(place.where.job, "1123483649");
  EXPECT_GE(place.where.port, 20000);
  EXPECT_LT(place.where.port, 30000);
  EXPECT_NE(place.where.port, place_of(with(openmpi, {{"PMIX_NAMESPACE", "1123483650"}})).where.port);
}

TEST(environment, of_hydra) {
  const auto place = place_of(with(hydra, {{"SPAR_ADDR", "a"}, {"SPAR_PORT", "1000"}}));
  EXPECT_EQ(place.rank, 3);
  EXPECT_EQ(place.size, 4);
  EXPECT_EQ(place.where.address, "a");
  EXPECT_EQ(place.where.port, 1000);
  EXPECT_EQ(place_of(with(hydra, {{"MPI_LOCALNRANKS", "4"}, {"SPAR_PORT", "1"}})).where.address, "127.0.0.1");
}

TEST(environment, of_slurm) {
  const auto place = place_of(slurm);
  EXPECT_EQ(place.rank, 5);
  EXPECT_EQ(place.size, 8);
  EXPECT_EQ(place.where.address, "node05");
  EXPECT_EQ(place.where.job, "77.3");
  EXPECT_EQ(place_of(with(slurm, {{"SLURM_STEP_NODELIST", ""}})).where.address, "login");
  EXPECT_EQ(place_of(with(slurm, {{"SLURM_STEP_NUM_NODES", "1"}})).where.address, "127.0.0.1");
  const auto batch = place_of(with(slurm, {{"SLURM_STEP_NUM_TASKS", ""}}));
  EXPECT_EQ(batch.size, 16);
}

TEST(environment, of_the_inner_launcher_counts) {
  EXPECT_EQ(place_of(with(slurm, torchrun)).rank, 2);
  EXPECT_EQ(place_of(with(slurm, openmpi)).rank, 1);
}

TEST(environment, of_spar_comes_before_that_of_launchers) {
  const auto place = place_of(with(torchrun, {{"SPAR_ADDR", "a"},
                                              {"SPAR_PORT", "1000"},
                                              {"SPAR_JOB", "job"},
                                              {"SPAR_SECRET", "correct horse"},
                                              {"SPAR_INTERFACE", "eth0"}}));
  EXPECT_EQ(place.where.address, "a");
  EXPECT_EQ(place.where.port, 1000);
  EXPECT_EQ(place.where.job, "job");
  EXPECT_EQ(place.where.secret, "correct horse");
  EXPECT_EQ(place.where.network_interface, "eth0");
}

TEST(environment, options_come_before_variables) {
  const spar::rendezvous_options options{"b", 2000, "own", "battery", "eth1", 7};
  const auto place = place_of(with(torchrun, {{"SPAR_ADDR", "a"},
                                              {"SPAR_PORT", "1000"},
                                              {"SPAR_JOB", "job"},
                                              {"SPAR_SECRET", "correct horse"},
                                              {"SPAR_INTERFACE", "eth0"}}),
                              options);
  EXPECT_EQ(place.where.address, "b");
  EXPECT_EQ(place.where.port, 2000);
  EXPECT_EQ(place.where.job, "own");
  EXPECT_EQ(place.where.secret, "battery");
  EXPECT_EQ(place.where.network_interface, "eth1");
  EXPECT_EQ(place.where.deadline, 7);
}

TEST(environment, of_one_rank_needs_neither_address_nor_port) {
  const auto place = place_of({{"RANK", "0"}, {"WORLD_SIZE", "1"}});
  EXPECT_EQ(place.where.address, "127.0.0.1");
  EXPECT_EQ(place.where.port, 0);
}

TEST(environment, errors_name_the_variable_its_value_and_what_was_expected) {
  EXPECT_EQ(error_of({{"RANK", "0"}}),
            "the variable WORLD_SIZE is not set or empty; expected a number from 1 to 2147483647");
  EXPECT_EQ(error_of({{"RANK", "4"}, {"WORLD_SIZE", "4"}}),
            "the variable RANK is \"4\"; expected a number from 0 to 3");
  EXPECT_EQ(error_of({{"RANK", "0"}, {"WORLD_SIZE", "0"}}),
            "the variable WORLD_SIZE is \"0\"; expected a number from 1 to 2147483647");
  for (const char* const bad : {"x", "-1", "1x", " 1", "+1", "1.0", "99999999999999999999"}) {
    const std::string quoted = std::string(" is \"") + bad + "\"; expected a number from ";
    EXPECT_NE(error_of({{"PMI_RANK", bad}, {"PMI_SIZE", "4"}}).find("PMI_RANK" + quoted), std::string::npos) << bad;
    EXPECT_NE(error_of(with(torchrun, {{"SPAR_PORT", bad}})).find("SPAR_PORT" + quoted), std::string::npos) << bad;
    EXPECT_NE(error_of(with(torchrun, {{"MASTER_PORT", bad}})).find("MASTER_PORT" + quoted), std::string::npos) << bad;
  }
  EXPECT_EQ(error_of(with(torchrun, {{"SPAR_PORT", "65536"}})),
            "the variable SPAR_PORT is \"65536\"; expected a number from 1 to 65535");
}

/// Variables that are contradictory or incomplete, and the error.
struct contradiction {
  variables set;
  const char* error;
};

TEST(environment, errors_of_variables_that_contradict_each_other_or_are_incomplete) {
  const contradiction all[] = {
      {{{"WORLD_SIZE", "4"}}, "the variable RANK is not set or empty; expected a number from 0 to 3"},
      {{{"OMPI_COMM_WORLD_SIZE", "4"}},
       "the variable OMPI_COMM_WORLD_RANK is not set or empty; expected a number from 0 to 3"},
      {{{"PMI_SIZE", "2"}}, "the variable PMI_RANK is not set or empty; expected a number from 0 to 1"},
      {{{"SLURM_NTASKS", "2"}}, "the variable SLURM_PROCID is not set or empty; expected a number from 0 to 1"},
      {{{"WORLD_SIZE", "x"}}, "the variable WORLD_SIZE is \"x\"; expected a number from 1 to 2147483647"},
      {{{"RANK", "2"}, {"WORLD_SIZE", "2"}}, "the variable RANK is \"2\"; expected a number from 0 to 1"},
      {{{"PMI_RANK", "7"}, {"PMI_SIZE", "7"}}, "the variable PMI_RANK is \"7\"; expected a number from 0 to 6"},
      {{{"SLURM_PROCID", "0"}},
       "the variable SLURM_NTASKS is not set or empty; expected a number from 1 to 2147483647"},
      {{{"RANK", "0"}, {"WORLD_SIZE", "2"}, {"LOCAL_WORLD_SIZE", "3"}},
       "the variable LOCAL_WORLD_SIZE is \"3\"; expected a number from 1 to 2"},
      {with(torchrun, {{"SPAR_ADDR", "node1:29600"}}),
       "the variable SPAR_ADDR is \"node1:29600\"; expected the name or the address of a host alone; SPAR_PORT has the "
       "port"},
      {with(torchrun, {{"MASTER_ADDR", "[::1]"}}), "the variable MASTER_ADDR is \"[::1]\"; expected the name or the "
                                                   "address of a host alone; SPAR_PORT has the port"},
      {with(torchrun, {{"SPAR_ADDR", "tcp://node1"}}),
       "the variable SPAR_ADDR is \"tcp://node1\"; expected the name or the address of a host alone; SPAR_PORT has the "
       "port"},
      {with(torchrun, {{"SPAR_PORT", "0"}}), "the variable SPAR_PORT is \"0\"; expected a number from 1 to 65535"},
      {with(torchrun, {{"SPAR_DEADLINE", "0"}}),
       "the variable SPAR_DEADLINE is \"0\"; expected a number from 1 to 1000000000"},
      {with(torchrun, {{"SPAR_DEADLINE", "5m"}}),
       "the variable SPAR_DEADLINE is \"5m\"; expected a number from 1 to 1000000000"},
      {with(slurm, {{"SLURM_STEP_NODELIST", "nid[001"}}),
       "the variable SLURM_STEP_NODELIST is \"nid[001\"; expected hosts of Slurm such as node[01-03,07], or SPAR_ADDR "
       "with the host of rank 0"},
  };
  for (const contradiction& one : all) EXPECT_EQ(error_of(one.set), one.error);
}

TEST(environment, an_address_of_ipv6_has_colons) {
  EXPECT_EQ(place_of(with(torchrun, {{"MASTER_ADDR", "fe80::1%eth0"}})).where.address, "fe80::1%eth0");
}

TEST(environment, says_how_long_to_wait) {
  EXPECT_EQ(place_of(torchrun).where.deadline, 300);
  EXPECT_EQ(place_of(with(torchrun, {{"SPAR_DEADLINE", "20"}})).where.deadline, 20);
  EXPECT_EQ(place_of(with(torchrun, {{"SPAR_DEADLINE", "20"}}), {.deadline = 7}).where.deadline, 7);
}

TEST(environment, errors_say_what_is_missing) {
  EXPECT_NE(error_of({}).find("does not say which rank this process is"), std::string::npos);
  EXPECT_NE(error_of(hydra).find("does not say where rank 0 runs; expected the variable SPAR_ADDR"), std::string::npos);
  EXPECT_NE(error_of(with(hydra, {{"SPAR_ADDR", "a"}})).find("expected the variable SPAR_PORT"), std::string::npos);
}

TEST(environment, first_host_of_slurm) {
  const auto first = [](const char* list) { return spar::detail::first_slurm_host("SLURM_JOB_NODELIST", list); };
  EXPECT_EQ(first("node"), "node");
  EXPECT_EQ(first("a,b"), "a");
  EXPECT_EQ(first("node[01-03,07]"), "node01");
  EXPECT_EQ(first("node[7,9]"), "node7");
  EXPECT_EQ(first("node[12]"), "node12");
  EXPECT_EQ(first("nid[001-003,7]"), "nid001");
  EXPECT_EQ(first("nid[7,001-003]"), "nid7");
  EXPECT_EQ(first("login,nid[001-003,7]"), "login");
  EXPECT_EQ(first("a-b-[1-2].example.org,c"), "a-b-1.example.org");
  EXPECT_EQ(first("10.0.0.[5-9]"), "10.0.0.5");
  EXPECT_EQ(first("node[01-03]-ib,login"), "node01-ib");
  EXPECT_EQ(first("rack[2-3]n[08-09]"), "rack2n08");
  for (const char* const bad : {"", ",a", "node[", "node[]", "node[01", "node[-2]"}) {
    const std::string why = test::message_of<spar::invalid_argument>([&] { (void)first(bad); });
    EXPECT_NE(why.find(std::string("SLURM_JOB_NODELIST is \"") + bad + "\""), why.npos) << why;
  }
}

} // namespace
