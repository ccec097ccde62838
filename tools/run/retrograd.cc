// The command line: run, tune, kernels, models, dump, calibrate.

#include <CLI/CLI.hpp>

#include "tools/calibrate/calibrate.h"
#include "tools/explain/plan_options.h"
#include "tools/run/check_graph.h"
#include "tools/run/listings.h"
#include "tools/run/run.h"
#include "tools/run/tune.h"
#include "tools/support/parse_arguments.h"

namespace {

constexpr char kExamples[] = R"(Examples:
  retrograd models
  retrograd run golf_tiny --check
  retrograd run step.bwd.pb --inputs step.safetensors --spec h200 --device host --check
  retrograd run golf_tiny --check --disable vectorization --tighten registers --streams 3 --seed 7
  retrograd run golf_tiny --device cuda --check --repeat 20 --kernels --json
  retrograd run golf_tiny --device cuda --timeline golf.trace.json
  retrograd tune golf_tiny -o golf.tuned.textproto --budget 60
  retrograd run golf_tiny --device cuda --tuned golf.tuned.textproto
  retrograd kernels golf_tiny --dialect cuda
  retrograd kernels golf_plain_b48 --dialect hip --compile --arch gfx90a
  retrograd kernels golf_tiny --compile --report golf_tiny.report
  retrograd dump golf_tiny --stage plan --feedback golf_tiny.report
  retrograd dump mlp:layers=2 --stage plan --stage memory
  retrograd check step.bwd.pb
  retrograd check step.bwd.pb -o step.rgt
  retrograd calibrate --device cuda --base h200 --name mine -o mine.textproto

GRAPH is a file (.bwd.pb, or .rgt as text) or the name of a model (`retrograd models`).)";

constexpr char kRunNote[] =
    R"(With --check each gradient's error against the recorded one is printed,
  ||g - ref|| / max(||ref||, 1e-5 x norm of all gradients),
and the exit status is 0 only if all are within the tolerance: 1e-5 for a graph that is fp32
throughout (sums in another order), 2e-2 if it has bf16 or fp16 values (the framework rounds every
intermediate result to bf16, a fused kernel keeps it in fp32; 2e-2 is five units in the last place).
Gradients whose own norm is below the floor are mathematically zero or close; they are listed apart.
A gradient beyond the tolerance is right all the same if ||g - ref|| is within what rounding may add:
4 units of rounding of the same expression over absolute values. So it is where large terms cancel,
as in a bias before batch norm.)";

void AddPhases(CLI::App* command, int* phases) {
  command
      ->add_option("--phases", *phases,
                   "Phases that a run may be cut into, to hold less memory at its worst moment")
      ->check(CLI::Range(1, 64))
      ->capture_default_str();
}

// Who may make library calls, which is part of what choices are made among.
void AddCallOptions(CLI::App* command, retrograd::RunArguments* run) {
  command->add_flag("!--nondeterministic", run->deterministic,
                    "On a GPU attention may sum dQ in any order: faster, and two runs differ in "
                    "the last bits");
  command->add_flag("!--no-tiled-attention", run->tiled_attention,
                    "On a Hopper GPU leave attention to cuDNN, however fast our kernels are");
  command->add_option("--conv-bwd-input-backends", run->conv_bwd_input_backends,
                      "Who may make convolutions' gradients of their inputs: of cudnn and "
                      "retrograd, with commas between. The fastest does; on the host, where "
                      "loops stand in for cudnn, retrograd where cudnn is not named");
  command->add_option("--conv-bwd-weight-backends", run->conv_bwd_weight_backends,
                      "The same for the gradients of weights");
}

constexpr char kTuneNote[] =
    R"(The file holds, for each kind of library call, the candidates by name, their times, which was chosen
and what it wins over the default; docs/tuning.md. A call that is interrupted or killed loses nothing
that was measured: the same command goes on from there. When the budget is used up the calls that are
left are not in the file; the same command goes on with them.)";

}  // namespace

int main(int argc, char** argv) {
  using retrograd::AddPlanOptions;
  CLI::App app("Plans and runs the backward graphs of training steps.", "retrograd");
  app.footer(kExamples);
  app.require_subcommand(1);

  retrograd::RunArguments run;
  CLI::App* run_command = app.add_subcommand("run", "Run a graph's generated kernels");
  AddPlanOptions(run_command, &run.plan, "--spec", "that of where it runs");
  run_command->add_option("--inputs", run.inputs,
                          "Bundle (.safetensors) of inputs; default: the one beside the graph");
  retrograd::TakeSeeds(
      run_command->add_option("--random-inputs", run.random,
                              "Draw the inputs by this seed, not 0, instead: for times"),
      1);
  run_command
      ->add_option("--device", run.device,
                   "Where to run: host, cuda, cuda:N, hip or hip:N, of which hip has never run on "
                   "AMD hardware")
      ->capture_default_str();
  run_command->add_flag("--check", run.check, "Compare with the recorded gradients")
      ->excludes("--random-inputs");
  run_command->add_flag("--sanitize", run.sanitize,
                        "Kernels built with checks of every access, barrier and shuffle (slow)");
  run_command
      ->add_option("--streams", run.streams, "Streams to schedule on, 1 to 16; 0: as many as gain")
      ->capture_default_str();
  AddPhases(run_command, &run.phases);
  run_command->add_flag("!--no-memory-reuse", run.memory_reuse,
                        "Give every stored value bytes of its own");
  run_command->add_flag("!--no-in-place", run.in_place,
                        "Let no value take over the bytes of one that its kernel reads last");
  run_command->add_flag("!--no-second-plan", run.plan_again,
                        "Keep the first plan, though the compiler spills registers of its kernels");
  run_command->add_flag("--measured-calls", run.measured_calls,
                        "Plan again with what library calls were measured to take");
  run_command->add_flag(
      "!--no-timing", run.time_calls,
      "On an NVIDIA GPU take the first algorithm that a library offers for a call");
  run_command->add_flag("!--no-recording", run.record,
                        "Launch kernels one by one, instead of replaying a recorded run");
  run_command->add_flag("!--no-early-launches", run.early_launches,
                        "In a recorded run let no kernel start before the last has finished");
  run_command->add_flag("!--no-kept-indices", run.keep_sorted_indices,
                        "Sort indices in each run, whether they are those of the last run or not");
  run_command->add_option("--warp", run.warp, "Threads of a warp on the host: 32 or 64")
      ->check(CLI::IsMember({32, 64}))
      ->capture_default_str();
  retrograd::TakeSeeds(
      run_command->add_option("--seed", run.seed,
                              "Draws every order that is free: of blocks, threads and steps"),
      0);
  AddCallOptions(run_command, &run);
  run_command->add_option("--tuned", run.tuned,
                          "File of `retrograd tune`: nothing that is in it is measured");
  run_command
      ->add_option("--tuning-budget", run.tuning_budget_s,
                   "Seconds for timing library calls; beyond them the default makes a call; 0: no "
                   "limit")
      ->check(CLI::NonNegativeNumber);
  run_command->add_option("--save", run.save, "Write the computed gradients to this bundle");
  run_command
      ->add_option("--repeat-check", run.repeat_check,
                   "Run so often again: each gradient must be equal to the first run's, bit by bit")
      ->check(CLI::Range(1, 1000));
  CLI::Option* repeat = run_command->add_option(
      "--repeat", run.repeat, "Time so many runs: the device's own time, the host's hidden");
  repeat->check(CLI::Range(1, 100000));
  run_command->add_flag("--kernels", run.kernels, "Time each kernel and library call alone, too")
      ->needs(repeat);
  run_command->add_flag("--cold", run.cold, "Drive the caches empty before each timed run")
      ->needs(repeat);
  run_command->add_flag("--json", run.json, "Print the figures of --repeat as JSON")->needs(repeat);
  run_command->add_option(
      "--timeline", run.timeline,
      "Write when each step ran in a run, beside when it was predicted to, as a "
      "trace for Perfetto");
  run_command->footer(kRunNote);

  retrograd::TuneArguments tune{.run = {.device = "cuda"}};
  CLI::App* tune_command = app.add_subcommand(
      "tune", "Time the implementations of a graph's library calls, and write the choices");
  AddPlanOptions(tune_command, &tune.run.plan, "--spec", "that of the device");
  tune_command->add_option("-o,--output", tune.output, "File to write")->required();
  tune_command->add_option("--from", tune.from,
                           "File of choices that are not measured again, and are written, too");
  tune_command
      ->add_option("--budget", tune.run.tuning_budget_s,
                   "Seconds for timing: the calls that are left keep their default; 0: no limit")
      ->check(CLI::NonNegativeNumber);
  tune_command->add_option("--device", tune.run.device, "Where: cuda, cuda:N, hip or hip:N")
      ->capture_default_str();
  tune_command->add_option("--streams", tune.run.streams, "Streams to schedule on, 1 to 16")
      ->capture_default_str();
  AddPhases(tune_command, &tune.run.phases);
  AddCallOptions(tune_command, &tune.run);
  tune_command->footer(kTuneNote);

  retrograd::PlanArguments kernels;
  std::string dialect = "cuda";
  std::string arch, report;
  bool prelude = false, compile = false;
  CLI::App* kernels_command =
      app.add_subcommand("kernels", "Print the sources of a plan's kernels");
  AddPlanOptions(kernels_command, &kernels, "--spec");
  kernels_command->add_option("--dialect", dialect, "cuda, hip or host")->capture_default_str();
  kernels_command->add_flag("--prelude", prelude, "With the prelude that makes them compile");
  CLI::Option* compile_flag = kernels_command->add_flag(
      "--compile", compile, "Compile them (NVRTC, HIPRTC) and print registers and spills instead");
  kernels_command->add_option("--arch", arch, "Target of --compile; default: the spec's");
  kernels_command
      ->add_option("--report", report, "Write what --compile found to this file, for --feedback")
      ->needs(compile_flag);

  retrograd::CheckArguments check;
  CLI::App* check_command =
      app.add_subcommand("check", "Say whether graphs are legal, and what they hold");
  check_command->add_option("graph", check.graphs, "Files or models")->required();
  check_command->add_flag("--print", check.print, "Print each graph's text form, too");
  check_command->add_option("--bind", check.bind, "Numbers for the sizes that a graph leaves open")
      ->type_name("NAME=NUMBER,..");
  check_command->add_option("-o,--output", check.output,
                            "Write the graph to this file: as text where it ends in .rgt");

  CLI::App* models_command = app.add_subcommand("models", "List the graphs that have a name");

  retrograd::PlanArguments dump;
  std::vector<std::string> stages;
  int dump_streams = 0;
  CLI::App* dump_command = app.add_subcommand("dump", "Print what each stage makes of a graph");
  AddPlanOptions(dump_command, &dump, "--spec");
  dump_command->add_option("--stage", stages,
                           "graph, lower, plan, schedule, memory or program (of a GPU: launches, "
                           "\"early\" ones among them, calls and waits); repeatable");
  dump_command->add_option("--streams", dump_streams,
                           "Streams to schedule on, 1 to 16; 0: as many as gain");
  int dump_phases = 1;
  AddPhases(dump_command, &dump_phases);

  retrograd::CalibrateArguments calibrate;
  CLI::App* calibrate_command =
      app.add_subcommand("calibrate", "Measure a device's numbers and write its spec");
  calibrate_command
      ->add_option("--device", calibrate.device, "What to measure: cuda, cuda:N or host (roughly)")
      ->capture_default_str();
  calibrate_command
      ->add_option("--base", calibrate.base, "Spec whose numbers stand where none is measured")
      ->capture_default_str();
  calibrate_command->add_option("--name", calibrate.name, "Of the new spec; default: the base's");
  calibrate_command->add_option("-o,--output", calibrate.output, "File to write: spec.textproto")
      ->required();
  calibrate_command->add_option("--measurements", calibrate.measurements,
                                "Write all times to this file, too");
  calibrate_command->add_option(
      "--from", calibrate.from,
      "Fit the numbers again to the times of such a file, without a device");

  if (const std::optional<int> done = retrograd::ParseArguments(app, argc, argv)) return *done;
  if (run_command->parsed()) return retrograd::RunCommand(run);
  if (tune_command->parsed()) return retrograd::TuneCommand(tune);
  if (kernels_command->parsed()) {
    return compile ? retrograd::CompileCommand(kernels, dialect, arch, report)
                   : retrograd::KernelsCommand(kernels, dialect, prelude);
  }
  if (check_command->parsed()) return retrograd::CheckCommand(check);
  if (models_command->parsed()) return retrograd::ModelsCommand();
  if (calibrate_command->parsed()) return retrograd::CalibrateCommand(calibrate);
  return retrograd::DumpCommand(dump, stages, dump_streams, dump_phases);
}
